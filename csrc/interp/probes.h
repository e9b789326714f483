// The probes: C functions that an instrumented twin calls in place of, or around, its original
// instructions.
//
// Owns: performing each operation exactly as the interpreter's evaluation loop does (result,
// exception, order of effects) and reporting it to the session when one is active.  Does not own:
// which instruction calls which probe with which arguments (magpy/instrument/rewrite.py) nor what
// becomes of a report (session_events.cpp).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// The `op` of on_unary.  on_binary's are CPython's NB_* numbers (in-place ones included),
// on_compare's are Py_LT .. Py_GE.
enum UnaryOp : int {
  kUnaryNegative = 100,
  kUnaryPositive = 101,
  kUnaryInvert = 102,
  kUnaryNot = 103
};

// The arguments of a call of a Python function that the function's frame shall take over: once it
// has its own references, the hook drops these.  The innermost call that waits for its frame, or
// nullptr.
struct Handover {
  PyObject* function;
  PyObject** items;
  Py_ssize_t count;
};
extern thread_local Handover* tls_handover;

// Performs f(*args, **kwargs) for the session, reported like a call of the program.
PyObject* probed_call(PyObject* f, PyObject* args, PyObject* kwargs);
PyObject* probed_vectorcall(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* kwnames);

int init_probes(PyObject* module);

}  // namespace magpy
