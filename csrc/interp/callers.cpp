// The callers of a watched run; see callers.h.
#include "callers.h"

#include "compat.h"
#include "errors.h"

namespace magpy {
namespace {

thread_local compat::Frame* tls_outer = nullptr;  // the innermost caller of the watched run

bool of_magpy(compat::Frame* frame) {
  if (!compat::is_python_frame(frame)) return true;
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  PyObject* name = frame->f_globals != nullptr ? item_or_null(frame->f_globals, key) : nullptr;
  if (name == nullptr || !PyUnicode_Check(name)) return false;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) {
    PyErr_Clear();
    return false;
  }
  return std::strncmp(text, "magpy.", 6) == 0;
}

// Takes magpy's frames out of the chain; returns the innermost frame that is left.
compat::Frame* leave_out(PyThreadState* thread) {
  compat::Frame* current = compat::current_frame(thread);
  compat::Frame* outer = current;
  while (outer != nullptr && of_magpy(outer)) outer = outer->previous;
  if (outer == nullptr) return current;
  compat::set_current_frame(thread, outer);
  return outer;
}

}  // namespace

CallerScope::CallerScope()
    : thread_(PyThreadState_Get()),
      current_(compat::current_frame(thread_)),
      outer_before_(tls_outer) {
  tls_outer = leave_out(thread_);
}

CallerScope::~CallerScope() {
  compat::set_current_frame(thread_, static_cast<compat::Frame*>(current_));
  tls_outer = static_cast<compat::Frame*>(outer_before_);
}

ProgramScope::ProgramScope()
    : thread_(PyThreadState_Get()), current_(compat::current_frame(thread_)) {
  leave_out(thread_);
}

ProgramScope::~ProgramScope() {
  compat::set_current_frame(thread_, static_cast<compat::Frame*>(current_));
}

bool is_caller(PyObject* frame) {
  for (compat::Frame* f = tls_outer; f != nullptr; f = f->previous)
    if (reinterpret_cast<PyObject*>(f->frame_obj) == frame) return true;
  return false;
}

}  // namespace magpy
