// Argument trees of steps (magpy/ir/trees.py): tuples, lists, dicts and slices, with references to
// variables among their leaves.
//
// Owns: the walk that finds the variables, which every pass takes for every step.  Does not own:
// what else is done with such trees.
#include "ref.h"

namespace magpy {
namespace {

// Adds the attribute `var` of every object of class `kind` in the tree `v` to the set `out`.
bool collect(PyObject* v, PyObject* out, PyTypeObject* kind) {
  static PyObject* const var = PyUnicode_InternFromString("var");
  if (Py_IS_TYPE(v, kind)) {
    const Ref found = Ref::steal(PyObject_GetAttr(v, var));
    return found && PySet_Add(out, found.get()) == 0;
  }
  const bool sequence = PyTuple_Check(v) || PyList_Check(v);
  if (!sequence && !PyDict_Check(v) && !PySlice_Check(v)) return true;
  if (Py_EnterRecursiveCall(" in an argument tree") != 0) return false;
  bool done = true;
  if (sequence) {
    for (Py_ssize_t i = 0; done && i < PySequence_Fast_GET_SIZE(v); ++i) {
      const Ref item = Ref::borrow(PySequence_Fast_GET_ITEM(v, i));
      done = collect(item.get(), out, kind);
    }
  } else if (PyDict_Check(v)) {
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (done && PyDict_Next(v, &pos, &key, &value)) {
      const Ref item = Ref::borrow(value);
      done = collect(item.get(), out, kind);
    }
  } else {
    auto* slice = reinterpret_cast<PySliceObject*>(v);
    done = collect(slice->start, out, kind) && collect(slice->stop, out, kind) &&
           collect(slice->step, out, kind);
  }
  Py_LeaveRecursiveCall();
  return done;
}

PyObject* py_collect(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 3 || !PyAnySet_Check(args[1]) || !PyType_Check(args[2])) {
    PyErr_SetString(PyExc_TypeError, "collect() takes a tree, a set and a class");
    return nullptr;
  }
  if (!collect(args[0], args[1], reinterpret_cast<PyTypeObject*>(args[2]))) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"collect", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(py_collect)),
     METH_FASTCALL,
     "collect(tree, found, kind): adds `var` of every object of this very class that is in a tree "
     "of tuples, lists, dicts and slices to a set"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_trees(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace magpy
