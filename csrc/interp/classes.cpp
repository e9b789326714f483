// What Python cannot say about classes; see classes.h.
#include "classes.h"

#include "leaf.h"

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

// 1, 0, or -1 with an exception.
int is_subtype(PyTypeObject* type, PyObject* classes) {
  if (PyType_Check(classes))
    return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(classes));
  if (!PyTuple_Check(classes)) {
    PyErr_Format(PyExc_TypeError, "is_instance() needs a class or a tuple of classes, not %.100s",
                 Py_TYPE(classes)->tp_name);
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    const int found = is_subtype(type, PyTuple_GET_ITEM(classes, i));
    if (found != 0) return found;
  }
  return 0;
}

PyObject* py_is_instance(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 2) {
    PyErr_Format(PyExc_TypeError, "is_instance() takes 2 arguments, not %zd", n);
    return nullptr;
  }
  const int found = is_subtype(Py_TYPE(args[0]), args[1]);
  return found < 0 ? nullptr : PyBool_FromLong(found);
}

PyObject* py_own_dict(PyObject*, PyObject* v) {
  if (PyType_Check(v)) Py_RETURN_NONE;
  Ref dict = dict_as_it_is(v);
  if (dict && PyDict_CheckExact(dict.get())) return dict.release();
  Py_RETURN_NONE;
}

PyObject* py_referent(PyObject*, PyObject* v) {
  if (!PyWeakref_Check(v)) Py_RETURN_NONE;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(v, &found) < 0) return nullptr;
  if (found != nullptr) return found;
  Py_RETURN_NONE;
#else
  return Py_NewRef(PyWeakref_GET_OBJECT(v));
#endif
}

PyMethodDef functions[] = {
    {"own_dict", py_own_dict, METH_O,
     "own_dict(object) -> the dict of its attributes, or None: no property of that name is asked"},
    {"referent", py_referent, METH_O,
     "referent(object) -> what a weak reference or a weak proxy refers to, or None"},
    {"is_instance", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(py_is_instance)),
     METH_FASTCALL,
     "is_instance(object, class or tuple of classes) -> bool: by its type alone, which no code of "
     "the program tells"},
    {"c_base", py_c_base, METH_O,
     "c_base(cls) -> the nearest class written in C along the chain of `__base__`"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* c_base(PyTypeObject* type) {
  while (type->tp_dealloc == g_python_dealloc && type->tp_base != nullptr) type = type->tp_base;
  return type;
}

PyTypeObject* deque_type() {
  static PyTypeObject* type = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("collections"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "deque") : nullptr;
    if (!found) PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

int init_classes(PyObject* module) {
  const Ref made =
      Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "_"));
  if (!made) return -1;
  g_python_dealloc = reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc;
  // Now: later the code that runs may have builtins of its own, without `__import__` (those of a
  // named tuple have none).
  if (deque_type() == nullptr)
    return PyErr_SetString(PyExc_ImportError, "magpy: collections.deque is missing"), -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace magpy
