// Guard programs: the checks of one entry, run over the arguments of a call.
//
// Owns: the flat program of relative checks, the anchored objects with their cheap tests, and the
// text that says which check failed first.  Does not own: which checks an entry needs
// (magpy/guards), what a tensor is (csrc/tensor, reached through a table of C functions), who
// runs a guard and when (dispatch).  Called with the GIL held.
//
// No check raises and none runs Python code of the user's classes; a failing call inside a check
// means "does not hold".
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <vector>

#include "program.h"

namespace magpy {

struct GuardObject;
extern PyTypeObject Guard_Type;

// Does every check hold for this call?  `args` is a vector of npos positional values followed by
// the values named in kwnames (a tuple or nullptr), all borrowed.  Never raises; an exception that
// is set on entry is not touched.  With `among_others`, a call with other arguments is told early.
// `reads` (which may be nullptr) are registers that the caller wants to have.
bool Guard_check(GuardObject* guard, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames,
                 bool among_others, const Reads* reads);
// Whether every one of these is a register that some check or argument fills.
bool Guard_fills(GuardObject* guard, const std::vector<int>& registers);

int init_guards(PyObject* module);

}  // namespace magpy
