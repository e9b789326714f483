// The callable that `magpy.compile` gives: it runs the first entry whose guard holds.
//
// Owns: `Compiled` (entries, counters, attribute forwarding to the wrapped function), `Entry`, the
// MISS sentinel, `ModuleCall` (the
// `__call__` of compiled modules).  Does not own:
// what happens when no entry holds (`on_miss`, magpy/runtime), the checks (guards).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

extern PyTypeObject Compiled_Type;
extern PyTypeObject Entry_Type;
extern PyTypeObject ModuleCall_Type;

// What the call of a compiled callable, or of a compiled module, stands for: what it was made from,
// or nullptr for other objects.  Borrowed.
PyObject* compiled_behind(PyObject* object);

int init_dispatch(PyObject* module);

}  // namespace magpy
