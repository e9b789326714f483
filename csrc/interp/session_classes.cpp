// Calls that make classes or run code in dicts that the run has made, and looks at classes.
//
// Owns: telling these.  Does not own: the events that a look at a class becomes
// (session_attributes.cpp).  Called by the session, with the GIL held.

#include "session_impl.h"

namespace magpy {

// Whether it calls its first argument with the others: `operator.call`, `type.__call__`.
static bool calls_first(PyObject* f) {
  if (is_builtin(f, "call")) return true;
  return Py_IS_TYPE(f, &PyWrapperDescr_Type) && PyDescr_TYPE(f) == &PyType_Type &&
         PyUnicode_CompareWithASCIIString(PyDescr_NAME(f), "__call__") == 0;
}

bool makes_class(PyObject* f, PyObject* const* args, Py_ssize_t npos) {
  while (npos > 0 && calls_first(f)) {
    f = *args++;
    --npos;
  }
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

bool runs_in_made_dict(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                       PyObject* kwnames) {
  if (f != reinterpret_cast<PyObject*>(&PyFunction_Type) && !is_builtin(f, "exec") &&
      !is_builtin(f, "eval"))
    return false;
  PyObject* globals = npos > 1 ? args[1] : nullptr;
  for (Py_ssize_t i = 0; kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "globals") == 0)
      globals = args[npos + i];
  return globals != nullptr && PyDict_Check(globals) && !known_outside(s, globals);
}

}  // namespace magpy
