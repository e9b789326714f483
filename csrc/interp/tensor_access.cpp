// See tensor_access.h.
#include "tensor_access.h"

#include "leaf.h"

namespace magpy {

namespace {

const TensorApi* table = nullptr;

int install(PyObject* capsule) {
  auto* found = (const TensorApi*)PyCapsule_GetPointer(capsule, kTensorApiName);
  if (!found) return -1;
  if (found->version != kTensorApiVersion) {
    PyErr_Format(PyExc_ImportError,
                 "magpy._tensor has version %d of the tensor table, magpy._interp needs %d; build "
                 "both again",
                 found->version, kTensorApiVersion);
    return -1;
  }
  table = found;
  return add_leaf_type(found->device_type);
}

}  // namespace

const TensorApi* tensor_api() {
  if (table) return table;
  const Ref module = Ref::steal(PyImport_ImportModule("magpy._tensor"));
  const Ref capsule = Ref::steal(module ? PyObject_GetAttrString(module.get(), "_api") : nullptr);
  if (capsule && install(capsule.get()) < 0) table = nullptr;
  return table;
}

PyObject* set_tensor_api(PyObject*, PyObject* capsule) {
  if (install(capsule) < 0) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace magpy
