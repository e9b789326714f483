// The exception that is set: kept apart, taken, or found to say only that something is not there.
//
// Owns: nothing but the exception meanwhile.  Does not own: what an exception means.  Used by both
// extensions, with the GIL held.
#pragma once

#include "ref.h"

namespace magpy {

// Saves the exception that is set while magpy looks at something, whatever happens in between.
class ErrorGuard {
 public:
  ErrorGuard() { PyErr_Fetch(&type_, &value_, &tb_); }
  ~ErrorGuard() { PyErr_Restore(type_, value_, tb_); }
  ErrorGuard(const ErrorGuard&) = delete;
  ErrorGuard& operator=(const ErrorGuard&) = delete;

 private:
  PyObject *type_, *value_, *tb_;
};

// The exception that is set, with its traceback, or none.  It is set no longer.
inline Ref take_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref::steal(PyErr_GetRaisedException());
#else
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  if (type == nullptr) return Ref();
  PyErr_NormalizeException(&type, &value, &tb);
  if (tb != nullptr) PyException_SetTraceback(value, tb);
  Py_DECREF(type);
  Py_XDECREF(tb);
  return Ref::steal(value);
#endif
}

// What a dict has under the key, borrowed, or nullptr and no exception: a key that cannot be looked
// for is not there.
inline PyObject* item_or_null(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (found == nullptr && PyErr_Occurred()) PyErr_Clear();
  return found;
}

}  // namespace magpy
