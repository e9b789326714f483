// Classes and namespaces that the program makes during the run.
//
// Owns: telling them from those from outside, and what classes inherit from these.  Does not own:
// the events that a look at a class becomes (session_attributes.cpp), nor what is refused of them
// (magpy/capture/rebuild.py).  Called by the session, with the GIL held.
//
// A class tells nobody when it was made, and its metaclass, `__init_subclass__` and `__set_name__`
// see it before the call that makes it is over.  So the classes that there are, are noted before
// the first such call; only programs that make classes pay for it.

#include "session_impl.h"

namespace magpy {

static bool add_classes(RefMap<bool>& all) {
  static PyObject* const subclasses =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__");
  if (subclasses == nullptr) return false;
  std::vector<PyObject*> next{reinterpret_cast<PyObject*>(&PyBaseObject_Type)};
  all.add(next.back(), false);
  while (!next.empty()) {
    PyObject* cls = next.back();
    next.pop_back();
    const Ref list = Ref::steal(PyObject_CallOneArg(subclasses, cls));
    if (!list || !PyList_Check(list.get())) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
      PyObject* sub = PyList_GET_ITEM(list.get(), i);
      if (all.add(sub, false)) next.push_back(sub);
    }
  }
  return true;
}

bool makes_class(PyObject* f, Py_ssize_t npos) {
  if (PyType_Check(f))
    return npos > 1 && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(f), &PyType_Type);
  if (is_builtin(f, "__build_class__")) return true;
  PyObject* self = is_builtin(f, "__new__") ? PyCFunction_GET_SELF(f) : nullptr;
  return self != nullptr && PyType_Check(self) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self), &PyType_Type);
}

void read_classes(Session* s, PyObject* classes, bool derived) {
  if (PyTuple_Check(classes)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i)
      read_classes(s, PyTuple_GET_ITEM(classes, i), derived);
    return;
  }
  read_protocols(s, Py_TYPE(classes));
  if (derived && PyType_Check(classes)) read_protocols(s, reinterpret_cast<PyTypeObject*>(classes));
}

// Which classes a class derives from, its metaclass may say.
static void read_mro(Session* s, PyObject* part) {
  static PyObject* const mro = PyUnicode_InternFromString("mro");
  if (PyTuple_Check(part)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(part); ++i) read_mro(s, PyTuple_GET_ITEM(part, i));
    return;
  }
  if (!PyType_Check(part)) return;
  auto* cls = reinterpret_cast<PyTypeObject*>(part);
  PyTypeObject* meta = PyType_IsSubtype(cls, &PyType_Type) ? cls : Py_TYPE(part);
  if (is_heap(meta)) read_type_attr(s, meta, mro, _PyType_Lookup(meta, mro));
}

void read_parts_of_class(Session* s, PyObject* const* args, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    read_classes(s, args[i], true);
    read_mro(s, args[i]);
  }
}

void read_held_by_class(Session* s, PyTypeObject* cls) {
  PyObject *name, *value;
  Py_ssize_t pos = 0;
  while (cls->tp_dict != nullptr && PyDict_Next(cls->tp_dict, &pos, &name, &value))
    read_protocols(s, Py_TYPE(value));
}

void watch_classes(Session* s) {
  if (s->classes) return;
  PauseGuard pause;
  if (!add_classes(s->classes.emplace())) fail(s, "classes");
}

bool made_class(Session* s, PyTypeObject* t) {
  if (!s->classes || !is_heap(t)) return false;
  auto* cls = reinterpret_cast<PyObject*>(t);
  auto it = s->classes->find(cls);
  if (it != s->classes->end()) return it->second;
  if (known_outside(s, cls)) return false;
  s->classes->add(cls, true);
  return true;
}

bool found_in_made_class(Session* s, PyTypeObject* t, PyObject* name) {
  if (!made_class(s, t) || t->tp_mro == nullptr) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (!made_class(s, base)) {
      if (_PyType_Lookup(base, name) != nullptr) return false;
    } else if (base->tp_dict != nullptr &&
               PyDict_GetItemWithError(base->tp_dict, name) != nullptr) {
      return true;
    }
  }
  return false;
}

bool held_by_made_class(Session* s, PyObject* o) {
  if (!s->classes) return false;
  for (auto& [cls, made] : *s->classes) {
    if (!made) continue;
    PyObject* dict = reinterpret_cast<PyTypeObject*>(cls)->tp_dict;
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (dict != nullptr && PyDict_Next(dict, &pos, &k, &v))
      if (v == o) return true;
  }
  return false;
}

// Whether it is the dict of a module, which the program may have come by in ways that nobody
// reports.
static bool of_module(PyObject* dict) {
  for (const char* name : {"__name__", "__spec__", "__loader__"})
    if (PyDict_GetItemString(dict, name) == nullptr) return false;
  return true;
}

void note_space(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                PyObject* kwnames) {
  const bool function = f == reinterpret_cast<PyObject*>(&PyFunction_Type);
  if (!function && !is_builtin(f, "exec") && !is_builtin(f, "eval")) return;
  PyObject* globals = npos > 1 ? args[1] : nullptr;
  for (Py_ssize_t i = 0; function && kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "globals") == 0)
      globals = args[npos + i];
  if (globals == nullptr || !PyDict_Check(globals) || known_outside(s, globals) ||
      of_module(globals))
    return;
  s->spaces.add(globals);
}

std::vector<PyTypeObject*> outside_bases(Session* s, PyTypeObject* t) {
  std::vector<PyTypeObject*> found;
  for (Py_ssize_t i = 0; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (is_heap(base) && !made_class(s, base)) found.push_back(base);
  }
  return found;
}

}  // namespace magpy
