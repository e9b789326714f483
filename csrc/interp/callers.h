// The callers of a watched run: frames that were there before it.
//
// Owns: taking magpy's own frames out of the chain while the program runs, so that
// `sys._getframe(1)`, warnings and tracebacks show the program's caller; telling whether a frame
// object is a caller's.  Does not own: what follows when the program looks at one
// (session_events.cpp).  Called by session.cpp around a run, and by the events.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// While it lives, the thread's current frame is the innermost one that is not magpy's.  The GIL is
// held at both ends.
class CallerScope {
 public:
  CallerScope();
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  PyThreadState* thread_;
  void* current_;
  void* outer_before_;
};

// The same where magpy calls the program in the course of a watched run.
class ProgramScope {
 public:
  ProgramScope();
  ~ProgramScope();
  ProgramScope(const ProgramScope&) = delete;
  ProgramScope& operator=(const ProgramScope&) = delete;

 private:
  PyThreadState* thread_;
  void* current_;
};

// Whether `frame` (a frame object) was there before the watched run of this thread.
bool is_caller(PyObject* frame);

}  // namespace magpy
