// The extension module magpy._tensor: everything native that needs torch.
//
// Owns: the module object, the table for magpy._interp, small questions about single tensors.  Does
// not own: TensorMeta (meta), packs (pack), TorchState (state), Observer (observer).  Loaded by
// Python, and by magpy._interp when a guard first speaks of tensors.
#include <ATen/core/Tensor.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "../interp/tensor_api.h"
#include "meta.h"
#include "observer.h"
#include "pack.h"
#include "ref.h"
#include "state.h"

namespace magpy {

namespace {

PyObject* gradient(PyObject* object) {
  if (!is_tensor(object)) {
    PyErr_Format(PyExc_TypeError, "a tensor is needed, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  return THPVariable_Wrap(THPVariable_Unpack(object).unsafeGetTensorImpl()->grad());
}

PyObject* gradient_of(PyObject*, PyObject* object) { return gradient(object); }

TensorApi api = {
    kTensorApiVersion, &TensorMeta_Type, &TorchState_Type, &THPDeviceType, meta_matches,
    meta_difference,   pack_tensors,     check_pack,       free_pack,      tensors_overlap,
    tensors_apart,     state_matches,    state_difference, gradient,
};

const at::Tensor* unpack(PyObject* object) {
  if (is_tensor(object)) return &THPVariable_Unpack(object);
  PyErr_Format(PyExc_TypeError, "a tensor is needed, not %.100s", Py_TYPE(object)->tp_name);
  return nullptr;
}

PyObject* put_gradient(PyObject*, PyObject* args) {
  PyObject *object, *grad;
  if (!PyArg_ParseTuple(args, "OO", &object, &grad)) return nullptr;
  const at::Tensor* tensor = unpack(object);
  if (!tensor) return nullptr;
  at::Tensor value;
  if (grad != Py_None) {
    const at::Tensor* given = unpack(grad);
    if (!given) return nullptr;
    value = *given;
  }
  // Undefined is what a tensor has that never had a gradient.
  if (value.defined() || tensor->unsafeGetTensorImpl()->grad().defined())
    std::swap(value, tensor->unsafeGetTensorImpl()->mutable_grad());
  Py_RETURN_NONE;
}

PyObject* apart(PyObject*, PyObject* args) {
  PyObject* list;
  Py_ssize_t m;
  if (!PyArg_ParseTuple(args, "O!n:apart", &PyList_Type, &list, &m)) return nullptr;
  Py_ssize_t n = PyList_GET_SIZE(list);
  if (m < 0 || m > n) {
    PyErr_SetString(PyExc_ValueError, "apart: m must be from 0 to the number of tensors");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!unpack(PyList_GET_ITEM(list, i))) return nullptr;
  }
  return PyBool_FromLong(tensors_apart(((PyListObject*)list)->ob_item, (size_t)m, (size_t)n));
}

PyObject* overlaps(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO:overlaps", &a, &b) || !unpack(a) || !unpack(b)) return nullptr;
  return PyLong_FromLong((long)tensors_overlap(a, b));
}

PyObject* tensor_version(PyObject*, PyObject* object) {
  const at::Tensor* tensor = unpack(object);
  if (!tensor) return nullptr;
  const auto& counter = tensor->unsafeGetTensorImpl()->version_counter();
  return PyLong_FromLongLong(counter.enabled() ? (long long)counter.current_version() : -1);
}

PyObject* storage_id(PyObject*, PyObject* object) {
  const at::Tensor* tensor = unpack(object);
  if (!tensor) return nullptr;
  c10::TensorImpl* impl = tensor->unsafeGetTensorImpl();
  if (!impl->has_storage()) return PyLong_FromLong(0);
  return PyLong_FromVoidPtr(impl->unsafe_storage().unsafeGetStorageImpl());
}

// What the object of a `torch.autograd.Function` has its node by is a weak pointer up to some
// version of torch.
template <typename Node>
std::shared_ptr<torch::autograd::Node> held(const std::weak_ptr<Node>& pointer) {
  return pointer.lock();
}
template <typename Pointer>
Pointer held(const Pointer& pointer) {
  return pointer;
}

// The node of a Python object for one, or the one that adds gradients to a leaf; nullptr: there is
// none.
auto node_of(PyObject* object) {
  using torch::autograd::impl::try_get_grad_accumulator;
  if (is_tensor(object)) return try_get_grad_accumulator(THPVariable_Unpack(object));
  decltype(try_get_grad_accumulator(std::declval<const at::Tensor&>())) node;
  if (PyObject_TypeCheck(object, &THPFunctionType))
    node = held(reinterpret_cast<THPFunction*>(object)->cdata);
  else if (torch::autograd::THPCppFunction_Check(object))
    node = reinterpret_cast<torch::autograd::THPCppFunction*>(object)->cdata;
  return node;
}

// The Python of a hook that torch made for it.  What tells its class is its name: torch exports no
// type_info for a cast.
template <typename Hook>
PyObject* dict_of(const Hook& hook) {
  using namespace torch::autograd;
  const char* name = typeid(hook).name();
  auto ends = [name](const char* end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
  };
  if constexpr (std::is_same_v<Hook, FunctionPostHook>) {
    if (ends("18PyFunctionPostHookE")) return static_cast<const PyFunctionPostHook&>(hook).dict;
  } else {
    if (ends("17PyFunctionPreHookE")) return static_cast<const PyFunctionPreHook&>(hook).dict;
    if (ends("23PyFunctionTensorPreHookE"))
      return static_cast<const PyFunctionTensorPreHook&>(hook).dict;
  }
  return nullptr;
}

template <typename Hooks>
bool append_hooks(PyObject* list, const Hooks& hooks) {
  for (const auto& hook : hooks) {
    PyObject* dict = dict_of(*hook);
    if (dict == nullptr || !PyDict_Check(dict)) continue;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value))
      if (PyList_Append(list, value) < 0) return false;
  }
  return true;
}

template <typename Hooks>
bool any_native(const Hooks& hooks) {
  for (const auto& hook : hooks)
    if (dict_of(*hook) == nullptr) return true;
  return false;
}

PyObject* has_native_hooks(PyObject*, PyObject* object) {
  auto node = node_of(object);
  const bool found =
      node && (any_native(node->tensor_pre_hooks()) || any_native(node->pre_hooks()) ||
               any_native(node->post_hooks()) || !node->retains_grad_hooks().empty());
  return PyBool_FromLong(found);
}

PyObject* node_hooks(PyObject*, PyObject* object) {
  auto node = node_of(object);
  Ref list = Ref::steal(PyList_New(0));
  if (!list || !node) return list.release();
  const bool all = append_hooks(list.get(), node->tensor_pre_hooks()) &&
                   append_hooks(list.get(), node->pre_hooks()) &&
                   append_hooks(list.get(), node->post_hooks());
  return all ? list.release() : nullptr;
}

bool is_empty(PyObject* hooks) {
  return !hooks || hooks == Py_None || (PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) == 0);
}

// Whether nothing at all hears of a gradient that comes to a leaf.
bool is_unheard(PyObject* object) {
  if (!is_tensor(object)) return true;  // no pass comes to it
  const auto* leaf = (const THPVariable*)object;
  if (!is_empty(leaf->backward_hooks) || !is_empty(leaf->post_accumulate_grad_hooks) ||
      !THPVariable_Unpack(object).is_leaf())
    return false;
  auto node = node_of(object);
  return !node || (node->tensor_pre_hooks().empty() && node->pre_hooks().empty() &&
                   node->post_hooks().empty());
}

PyObject* unheard(PyObject*, PyObject* const* objects, Py_ssize_t n) {
  return PyBool_FromLong(std::all_of(objects, objects + n, is_unheard));
}

// The memory's owner: a view's base, or the tensor itself.
const c10::TensorImpl* owner_of(const at::Tensor& tensor) {
  return (tensor.is_view() ? tensor._base() : tensor).unsafeGetTensorImpl();
}

// Whether a gradient lies as that of a leaf does ("Gradient Layout Contract",
// torch/csrc/autograd/functions/accumulate_grad.h, and utils/grad_layout_contract.h).
bool lies_as(const at::Tensor& gradient, const at::Tensor& leaf) {
  if (gradient.layout() != c10::kStrided || leaf.layout() != c10::kStrided) return false;
  if (!leaf.is_non_overlapping_and_dense()) return gradient.is_contiguous();
  if (gradient.sizes() != leaf.sizes()) return false;
  for (int64_t i = 0; i < leaf.dim(); i++) {
    const int64_t stride = gradient.stride(i);
    if (leaf.size(i) == 1 ? stride == 0 : stride != leaf.stride(i)) return false;
  }
  return true;
}

PyObject* own_gradients(PyObject*, PyObject* args) {
  PyObject *gradients, *leaves, *given;
  if (!PyArg_ParseTuple(args, "OOO:own_gradients", &gradients, &leaves, &given)) return nullptr;
  const Ref found = Ref::steal(PySequence_Fast(gradients, "a sequence of gradients is needed"));
  const Ref ends = Ref::steal(PySequence_Fast(leaves, "a sequence of leaves is needed"));
  const Ref more = Ref::steal(given == Py_None
                                  ? PyTuple_New(0)
                                  : PySequence_Fast(given, "a sequence of gradients is needed"));
  if (!found || !ends || !more) return nullptr;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(ends.get());
  if (PySequence_Fast_GET_SIZE(found.get()) < n)
    return PyErr_SetString(PyExc_ValueError, "a gradient is needed for each leaf"), nullptr;
  Ref results = Ref::steal(PyList_New(n));
  if (!results) return nullptr;
  try {
    std::unordered_map<const c10::TensorImpl*, int> times;
    for (PyObject* sequence : {found.get(), more.get()}) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++) {
        PyObject* object = PySequence_Fast_GET_ITEM(sequence, i);
        if (object == Py_None) continue;
        const at::Tensor* tensor = unpack(object);
        if (!tensor) return nullptr;
        times[owner_of(*tensor)]++;
      }
    }
    for (Py_ssize_t i = 0; i < n; i++) {
      const at::Tensor* leaf = unpack(PySequence_Fast_GET_ITEM(ends.get(), i));
      const at::Tensor* gradient = unpack(PySequence_Fast_GET_ITEM(found.get(), i));
      if (!leaf || !gradient) return nullptr;
      const bool own = times[owner_of(*gradient)] == 1 && lies_as(*gradient, *leaf);
      PyObject* result = own ? THPVariable_Wrap(gradient->detach()) : Py_NewRef(Py_None);
      if (!result) return nullptr;
      PyList_SET_ITEM(results.get(), i, result);
    }
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return results.release();
}

PyMethodDef methods[] = {
    {"apart", apart, METH_VARARGS,
     "apart(tensors, m) -> bool: does none of the first m tensors of a list overlap with another "
     "of it?"},
    {"overlaps", overlaps, METH_VARARGS,
     "overlaps(a, b) -> int: 0 where their ranges of memory do not intersect, 2 where they start "
     "together, else 1; 2 more where two storages show it."},
    {"tensor_version", tensor_version, METH_O,
     "How often the tensor was changed in place; -1 for inference tensors."},
    {"storage_id", storage_id, METH_O,
     "The identity of the tensor's storage while it lives; 0 when it has none."},
    {"node_hooks", node_hooks, METH_O,
     "The Python hooks of a node of autograd's graph, or of the one that adds to a leaf's "
     "gradient."},
    {"has_native_hooks", has_native_hooks, METH_O,
     "Whether such a node has hooks that are not Python's: those of a reducer of gradients, or of "
     "`retain_grad`."},
    {"unheard", (PyCFunction)(void (*)())unheard, METH_FASTCALL,
     "unheard(*leaves) -> bool: does no hook, of Python or of C++, hear of the gradients of any of "
     "these leaves?"},
    {"own_gradients", own_gradients, METH_VARARGS,
     "own_gradients(gradients, leaves, given) -> list: each gradient that autograd's engine gave, "
     "as AccumulateGrad keeps it; None for one that has to be copied."},
    {"gradient", gradient_of, METH_O,
     "The gradient that has been accumulated in a tensor, or None: `.grad` that nobody hears of."},
    {"put_gradient", put_gradient, METH_VARARGS,
     "put_gradient(tensor, grad): what `gradient` gives from now on, whatever the tensor is like "
     "by now."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "magpy._tensor",
                          "What magpy asks of tensors and of torch's state.", -1, methods};

}  // namespace

}  // namespace magpy

PyMODINIT_FUNC PyInit__tensor() {
  magpy::Ref made = magpy::Ref::steal(PyModule_Create(&magpy::definition));
  if (!made) return nullptr;
  PyObject* module = made.get();
  magpy::init_pack();
  const magpy::Ref capsule =
      magpy::Ref::steal(PyCapsule_New(&magpy::api, magpy::kTensorApiName, nullptr));
  const bool complete = capsule && magpy::init_meta(module) == 0 &&
                        magpy::init_state(module) == 0 && magpy::init_observer(module) == 0 &&
                        PyModule_AddObjectRef(module, "_api", capsule.get()) == 0;
  return complete ? made.release() : nullptr;
}
