// How the torch-free extension finds csrc/tensor at run time.
//
// Owns: the pointer to the table of C functions.  Does not own: the table (magpy._tensor keeps it
// alive for good).  Called by guards and anchors when a guard that speaks of tensors is built, and
// on every check after that.
#pragma once

#include "tensor_api.h"

namespace magpy {

// The table, importing magpy._tensor on first use; nullptr with an exception set when there is
// none.
const TensorApi* tensor_api();

// `_interp.set_tensor_api(capsule)`.
PyObject* set_tensor_api(PyObject* module, PyObject* capsule);

}  // namespace magpy
