// What Python cannot say about classes; see classes.h.
#include "classes.h"

namespace magpy {
namespace {

destructor g_python_dealloc = nullptr;  // tp_dealloc of every class that a class statement makes

PyObject* py_c_base(PyObject*, PyObject* arg) {
  if (!PyType_Check(arg)) {
    PyErr_Format(PyExc_TypeError, "c_base() needs a class, not %.100s", Py_TYPE(arg)->tp_name);
    return nullptr;
  }
  return Py_NewRef(reinterpret_cast<PyObject*>(c_base(reinterpret_cast<PyTypeObject*>(arg))));
}

PyMethodDef functions[] = {
    {"c_base", py_c_base, METH_O, "c_base(cls) -> the nearest class written in C along the chain of `__base__`"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* c_base(PyTypeObject* type) {
  while (type->tp_dealloc == g_python_dealloc && type->tp_base != nullptr) type = type->tp_base;
  return type;
}

PyTypeObject* deque_type() {
  static PyTypeObject* type = [] {
    PyObject* module = PyImport_ImportModule("collections");
    PyObject* found = module ? PyObject_GetAttrString(module, "deque") : nullptr;
    Py_XDECREF(module);
    if (!found) PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

int init_classes(PyObject* module) {
  PyObject* made = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "_");
  if (made == nullptr) return -1;
  g_python_dealloc = reinterpret_cast<PyTypeObject*>(made)->tp_dealloc;
  Py_DECREF(made);
  return PyModule_AddFunctions(module, functions);
}

}  // namespace magpy
