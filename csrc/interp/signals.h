// Signals that come while magpy's own code runs.
//
// Owns: putting off the program's handlers (https://docs.python.org/3/library/signal.html) until
// magpy is done. What a handler raises leaves the program where the program runs, and is never
// taken for a failure of magpy's, or for a guard that does not hold. Does not own: telling what a
// handler has raised elsewhere (magpy/frames/signals.py). Called where magpy's Python is called
// from here.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// From hold to release no handler runs on this thread; the calls nest.
void hold_signals();
void release_signals();

struct SignalHold {
  SignalHold() { hold_signals(); }
  ~SignalHold() { release_signals(); }
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;
};

// The program runs in the middle of that: its handlers run, too.
class SignalsLetIn {
 public:
  SignalsLetIn();
  ~SignalsLetIn();
  SignalsLetIn(const SignalsLetIn&) = delete;
  SignalsLetIn& operator=(const SignalsLetIn&) = delete;

 private:
  int held_;
};

int init_signals(PyObject* module);

}  // namespace magpy
