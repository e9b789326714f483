// See guards.h.
#include "guards.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "anchors.h"
#include "leaf.h"
#include "program.h"
#include "tensor_access.h"

namespace magpy {

struct GuardObject {
  PyObject_HEAD bool dead;  // cleared by the cycle collector
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
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO!iOO!:Guard", const_cast<char**>(names), &npos,
                                   &PyTuple_Type, &kwnames, &nregs, &checks, &PyDict_Type,
                                   &anchors)) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
    if (!PyUnicode_Check(PyTuple_GET_ITEM(kwnames, i))) {
      return PyErr_SetString(PyExc_TypeError, "kwnames must be a tuple of str"), nullptr;
    }
  }
  if (npos < 0) return PyErr_SetString(PyExc_ValueError, "npos must not be negative"), nullptr;
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = (GuardObject*)made.get();
  self->program = new (std::nothrow) Program();
  self->anchors = new (std::nothrow) Anchors();
  if (!self->program || !self->anchors) return PyErr_NoMemory();
  const Ref fast = Ref::steal(PySequence_Fast(checks, "checks must be a sequence"));
  if (!fast) return nullptr;
  Program& program = *self->program;
  program.refs.add(kwnames);
  program.kwnames = kwnames;
  program.npos = npos;
  program.narguments = (int)(npos + PyTuple_GET_SIZE(kwnames));
  if (build_program(program, nregs, PySequence_Fast_ITEMS(fast.get()),
                    PySequence_Fast_GET_SIZE(fast.get())) < 0)
    return nullptr;
  if (self->anchors->build(anchors) < 0) return nullptr;
  return made.release();
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
    self->program->ops.clear();
    self->program->refs.clear();
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
  Ref kwnames;

  int parse(PyObject* args, PyObject* kwargs) {
    npos = PyTuple_GET_SIZE(args);
    for (Py_ssize_t i = 0; i < npos; i++) values.push_back(PyTuple_GET_ITEM(args, i));
    if (kwargs == Py_None) return 0;
    if (!PyDict_Check(kwargs))
      return PyErr_SetString(PyExc_TypeError, "kwargs must be a dict or None"), -1;
    kwnames = Ref::steal(PyTuple_New(PyDict_GET_SIZE(kwargs)));
    if (!kwnames) return -1;
    PyObject *key, *value;
    Py_ssize_t pos = 0, i = 0;
    while (PyDict_Next(kwargs, &pos, &key, &value)) {
      PyTuple_SET_ITEM(kwnames.get(), i++, Py_NewRef(key));
      values.push_back(value);
    }
    return 0;
  }
};

PyObject* guard_check(PyObject* self, PyObject* args) {
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:check", &PyTuple_Type, &positional, &keywords) ||
      call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  return PyBool_FromLong(Guard_check((GuardObject*)self, call.values.data(), call.npos,
                                     call.kwnames.get(), false, nullptr));
}

PyObject* explanation(Failure failure) {
  if (!failure.text) failure.text = format_text("changed");
  if (!failure.text) return nullptr;
  PyObject* text = failure.text.get();
  if (std::strcmp(failure.section, "checks") == 0) return Py_BuildValue("(nO)", failure.i, text);
  return Py_BuildValue("((snn)O)", failure.section, failure.i, failure.j, text);
}

PyObject* guard_explain(PyObject* object, PyObject* args) {
  auto* self = (GuardObject*)object;
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:explain", &PyTuple_Type, &positional, &keywords) ||
      call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  Failure failure;
  const Program& program = *self->program;
  if (self->dead) {
    failure.section = "dead";
  } else if (call.npos != program.npos) {
    failure.section = "args";
    failure.text = format_text("%zd positional arguments instead of %zd", call.npos, program.npos);
  } else if (!kwnames_match(program.kwnames, call.kwnames.get())) {
    failure.section = "args";
    const Ref found = call.kwnames ? safe_text(call.kwnames.get()) : format_text("()"),
              expected = safe_text(program.kwnames);
    if (found && expected)
      failure.text = format_text("keyword arguments %U instead of %U", found.get(), expected.get());
  } else if (self->anchors->explain(&failure) &&
             run_program(program, call.values.data(), program.ops.size(), &failure)) {
    Py_RETURN_NONE;
  }
  return explanation(std::move(failure));
}

PyObject* py_leaf_equal(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO:leaf_equal", &a, &b)) return nullptr;
  return PyBool_FromLong(leaf_equal(a, b));
}

PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_VARARGS,
     "check(args, kwargs=None) -> bool: does every check hold for this call?"},
    {"explain", guard_explain, METH_VARARGS,
     "explain(args, kwargs=None): None, or which check fails first and why."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef module_methods[] = {
    {"set_tensor_api", set_tensor_api, METH_O, "Installs the capsule magpy._tensor._api."},
    {"leaf_equal", py_leaf_equal, METH_VARARGS, "Are these the same object, or equal leaves?"},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* absent_repr(PyObject*) { return PyUnicode_FromString("ABSENT"); }

PyTypeObject Absent_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

PyTypeObject Guard_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool Guard_check(GuardObject* guard, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames,
                 bool among_others, const Reads* reads) {
  const Program& program = *guard->program;
  if (guard->dead || !arguments_match(program, npos, kwnames)) return false;
  // Entries mostly differ in what they were given: that is found out before everything anchored is
  // looked at.  The checks run again after it, since what it runs may change anything.
  if (among_others && !run_program(program, args, program.harmless, nullptr)) return false;
  if (!guard->anchors->check()) return false;
  return run_program(program, args, program.ops.size(), nullptr, reads);
}

bool Guard_fills(GuardObject* guard, const std::vector<int>& registers) {
  const Program& program = *guard->program;
  std::vector<bool> filled(program.nregisters, false);
  std::fill_n(filled.begin(), program.narguments, true);
  for (const Op& op : program.ops) {
    switch (op.code) {
      case Code::kDictGet:
      case Code::kInstDict:
      case Code::kAttr:
      case Code::kGradient:
      case Code::kItem:
      case Code::kItemAt:
      case Code::kCell: filled[op.dst] = true; break;
      case Code::kMethod: filled[op.dst] = filled[op.dst2] = true; break;
      case Code::kDeque: std::fill_n(filled.begin() + op.dst, op.n, true); break;
      default: break;
    }
  }
  return std::all_of(registers.begin(), registers.end(),
                     [&](int r) { return r >= 0 && r < program.nregisters && filled[r]; });
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
