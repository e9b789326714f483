// What Python cannot say about classes and modules.
//
// Owns: telling classes written in C from those that a class statement made, finding one that has
// no name in C, and the functions that a module was made with.  Does not own: what follows from it.
// Called by the session, and by magpy/objects/c_state.py through `c_base`.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// The nearest class written in C along the chain of `tp_base` (borrowed).
PyTypeObject* c_base(PyTypeObject* type);
// collections.deque (borrowed), or nullptr without an exception.
PyTypeObject* deque_type();

}  // namespace magpy
