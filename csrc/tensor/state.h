// The state of torch that decides what an operation does and that no argument shows.
//
// Owns: TorchState, a snapshot of grad mode, autocast, default dtype, modes on the stacks, global
// switches, and the comparison with the present.  Does not own: who changes that state, or what an
// entry does about it.  Called through csrc/interp/tensor_api.h on every call of an entry, and from
// Python.
#pragma once

#include <torch/csrc/python_headers.h>

namespace magpy {

extern PyTypeObject TorchState_Type;

bool state_matches(PyObject* state);
// A new str saying what changed first, or nullptr (without an exception) when nothing did.
PyObject* state_difference(PyObject* state);

int init_state(PyObject* module);

}  // namespace magpy
