// See guards.h.
#include "guards.h"

#include <cstring>
#include <new>
#include <vector>

#include "anchors.h"
#include "leaf.h"
#include "program.h"
#include "tensor_access.h"

namespace magpy {

struct GuardObject {
  PyObject_HEAD
  bool dead;  // cleared by the cycle collector
  Program* program;
  Anchors* anchors;
};

namespace {

bool kwnames_match(PyObject* expected, PyObject* given) {
  if (!given) return PyTuple_GET_SIZE(expected) == 0;
  if (given == expected) return true;
  Py_ssize_t n = PyTuple_GET_SIZE(expected);
  if (PyTuple_GET_SIZE(given) != n) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *a = PyTuple_GET_ITEM(expected, i), *b = PyTuple_GET_ITEM(given, i);
    if (a == b) continue;
    if (!PyUnicode_Check(b) || PyUnicode_Compare(a, b) != 0) return false;
  }
  return true;
}

bool arguments_match(const Program& program, Py_ssize_t npos, PyObject* kwnames) {
  return npos == program.npos && kwnames_match(program.kwnames, kwnames);
}

PyObject* guard_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"npos", "kwnames", "nregs", "checks", "anchors", nullptr};
  Py_ssize_t npos;
  int nregs;
  PyObject *kwnames, *checks, *anchors;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO!iOO!:Guard", const_cast<char**>(names), &npos, &PyTuple_Type, &kwnames,
                                   &nregs, &checks, &PyDict_Type, &anchors)) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
    if (!PyUnicode_Check(PyTuple_GET_ITEM(kwnames, i))) {
      return PyErr_SetString(PyExc_TypeError, "kwnames must be a tuple of str"), nullptr;
    }
  }
  if (npos < 0) return PyErr_SetString(PyExc_ValueError, "npos must not be negative"), nullptr;
  auto* self = (GuardObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->dead = false;
  self->program = new (std::nothrow) Program();
  self->anchors = new (std::nothrow) Anchors();
  PyObject* fast = self->program && self->anchors ? PySequence_Fast(checks, "checks must be a sequence") : PyErr_NoMemory();
  if (!fast) {
    Py_DECREF(self);
    return nullptr;
  }
  Program& program = *self->program;
  Py_INCREF(kwnames);
  program.refs.push_back(kwnames);
  program.kwnames = kwnames;
  program.npos = npos;
  program.narguments = (int)(npos + PyTuple_GET_SIZE(kwnames));
  int status = build_program(program, nregs, PySequence_Fast_ITEMS(fast), PySequence_Fast_GET_SIZE(fast));
  Py_DECREF(fast);
  if (status == 0) status = self->anchors->build(anchors);
  if (status < 0) {
    Py_DECREF(self);
    return nullptr;
  }
  return (PyObject*)self;
}

int guard_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = (GuardObject*)object;
  if (self->program) {
    for (PyObject* ref : self->program->refs) Py_VISIT(ref);
  }
  return self->anchors ? self->anchors->traverse(visit, arg) : 0;
}

int guard_clear(PyObject* object) {
  auto* self = (GuardObject*)object;
  self->dead = true;
  if (self->program) {
    std::vector<PyObject*> refs;
    refs.swap(self->program->refs);
    self->program->ops.clear();
    for (PyObject* ref : refs) Py_DECREF(ref);
  }
  if (self->anchors) self->anchors->release();
  return 0;
}

void guard_dealloc(PyObject* object) {
  auto* self = (GuardObject*)object;
  PyObject_GC_UnTrack(object);
  guard_clear(object);
  delete self->program;
  delete self->anchors;
  Py_TYPE(object)->tp_free(object);
}

// A call given as (tuple, dict | None), spread into a vector.
struct Call {
  std::vector<PyObject*> values;
  Py_ssize_t npos = 0;
  PyObject* kwnames = nullptr;
  ~Call() { Py_XDECREF(kwnames); }

  int parse(PyObject* args, PyObject* kwargs) {
    npos = PyTuple_GET_SIZE(args);
    for (Py_ssize_t i = 0; i < npos; i++) values.push_back(PyTuple_GET_ITEM(args, i));
    if (kwargs == Py_None) return 0;
    if (!PyDict_Check(kwargs)) return PyErr_SetString(PyExc_TypeError, "kwargs must be a dict or None"), -1;
    kwnames = PyTuple_New(PyDict_GET_SIZE(kwargs));
    if (!kwnames) return -1;
    PyObject *key, *value;
    Py_ssize_t pos = 0, i = 0;
    while (PyDict_Next(kwargs, &pos, &key, &value)) {
      PyTuple_SET_ITEM(kwnames, i++, Py_NewRef(key));
      values.push_back(value);
    }
    return 0;
  }
};

PyObject* guard_check(PyObject* self, PyObject* args) {
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:check", &PyTuple_Type, &positional, &keywords) || call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  return PyBool_FromLong(Guard_check((GuardObject*)self, call.values.data(), call.npos, call.kwnames, false));
}

PyObject* explanation(const Failure& failure) {
  PyObject* text = failure.text ? failure.text : PyUnicode_FromString("changed");
  if (!text) return nullptr;
  PyObject* result = std::strcmp(failure.section, "checks") == 0
                         ? Py_BuildValue("(nN)", failure.i, text)
                         : Py_BuildValue("((snn)N)", failure.section, failure.i, failure.j, text);
  return result;
}

PyObject* guard_explain(PyObject* object, PyObject* args) {
  auto* self = (GuardObject*)object;
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:explain", &PyTuple_Type, &positional, &keywords) || call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  Failure failure;
  const Program& program = *self->program;
  if (self->dead) {
    failure.section = "dead";
  } else if (call.npos != program.npos) {
    failure.section = "args";
    failure.text = PyUnicode_FromFormat("%zd positional arguments instead of %zd", call.npos, program.npos);
  } else if (!kwnames_match(program.kwnames, call.kwnames)) {
    failure.section = "args";
    PyObject *found = call.kwnames ? safe_text(call.kwnames) : PyUnicode_FromString("()"), *expected = safe_text(program.kwnames);
    if (found && expected) failure.text = PyUnicode_FromFormat("keyword arguments %U instead of %U", found, expected);
    Py_XDECREF(found);
    Py_XDECREF(expected);
  } else if (self->anchors->explain(&failure) && run_program(program, call.values.data(), program.ops.size(), &failure)) {
    Py_RETURN_NONE;
  }
  return explanation(failure);
}

PyObject* op_text(const Op& op) {
  PyObject* text = PyUnicode_FromFormat("%s", op_name(op.code));
  for (Py_ssize_t i = 1; text && i < PyTuple_GET_SIZE(op.source); i++) {
    PyObject* part = safe_text(PyTuple_GET_ITEM(op.source, i));
    PyObject* joined = part ? PyUnicode_FromFormat("%U %U", text, part) : nullptr;
    Py_XDECREF(part);
    Py_DECREF(text);
    text = joined;
  }
  return text;
}

PyObject* guard_describe(PyObject* object, PyObject*) {
  auto* self = (GuardObject*)object;
  PyObject* lines = PyList_New(0);
  if (!lines) return nullptr;
  int status = self->anchors->describe(lines);
  for (size_t i = 0; status == 0 && i < self->program->ops.size(); i++) {
    PyObject* text = op_text(self->program->ops[i]);
    status = text ? PyList_Append(lines, text) : -1;
    Py_XDECREF(text);
  }
  if (status < 0) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    Py_CLEAR(lines);
  }
  return lines;
}

PyObject* py_add_leaf_type(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_SetString(PyExc_TypeError, "a class is needed"), nullptr;
  add_leaf_type((PyTypeObject*)type);
  Py_RETURN_NONE;
}

PyObject* py_leaf_equal(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO:leaf_equal", &a, &b)) return nullptr;
  return PyBool_FromLong(leaf_equal(a, b));
}

PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_VARARGS, "check(args, kwargs=None) -> bool: does every check hold for this call?"},
    {"explain", guard_explain, METH_VARARGS, "explain(args, kwargs=None): None, or which check fails first and why."},
    {"describe", guard_describe, METH_NOARGS, "describe() -> list[str]: a line for each check."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef module_methods[] = {
    {"set_tensor_api", set_tensor_api, METH_O, "Installs the capsule magpy._tensor._api."},
    {"add_leaf_type", py_add_leaf_type, METH_O, "Makes a class whose == is harmless C code compare by value."},
    {"leaf_equal", py_leaf_equal, METH_VARARGS, "Are these the same object, or equal leaves?"},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* absent_repr(PyObject*) { return PyUnicode_FromString("ABSENT"); }

PyTypeObject Absent_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

PyTypeObject Guard_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool Guard_check(GuardObject* guard, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, bool among_others) {
  const Program& program = *guard->program;
  if (guard->dead || !arguments_match(program, npos, kwnames)) return false;
  // Entries mostly differ in what they were given: that is found out before everything anchored is looked at.  The checks run again
  // after it, since what it runs may change anything.
  if (among_others && !run_program(program, args, program.harmless, nullptr)) return false;
  if (!guard->anchors->check()) return false;
  return run_program(program, args, program.ops.size(), nullptr);
}

int init_guards(PyObject* module) {
  Absent_Type.tp_name = "magpy._interp.Absent";
  Absent_Type.tp_basicsize = sizeof(PyObject);
  Absent_Type.tp_flags = Py_TPFLAGS_DEFAULT;
  Absent_Type.tp_repr = absent_repr;
  Absent_Type.tp_doc = "The type of ABSENT: a key, attribute or cell content that must be missing.";
  Guard_Type.tp_name = "magpy._interp.Guard";
  Guard_Type.tp_basicsize = sizeof(GuardObject);
  Guard_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  Guard_Type.tp_doc = "The checks of one entry.";
  Guard_Type.tp_new = guard_new;
  Guard_Type.tp_dealloc = guard_dealloc;
  Guard_Type.tp_traverse = guard_traverse;
  Guard_Type.tp_clear = guard_clear;
  Guard_Type.tp_methods = guard_methods;
  if (PyType_Ready(&Absent_Type) < 0 || PyType_Ready(&Guard_Type) < 0) return -1;
  absent = PyObject_New(PyObject, &Absent_Type);
  if (!absent || PyModule_AddObjectRef(module, "ABSENT", absent) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Absent", (PyObject*)&Absent_Type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Guard", (PyObject*)&Guard_Type) < 0) return -1;
  return PyModule_AddFunctions(module, module_methods);
}

}  // namespace magpy
