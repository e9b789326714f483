// What a guard remembers of a tensor, and whether another tensor is like it.
//
// Owns: TensorMeta (type, dtype, device, layout, sizes, strides, gradient flags, dispatch keys),
// the test whether two tensors share memory.  Does not own: which tensors a guard looks at
// (magpy/guards), many tensors at once (pack.h), torch's global state (state.h). Called through
// the table in csrc/interp/tensor_api.h and from Python, with the GIL held.  Nothing throws.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include "tensor_api.h"

namespace magpy {

extern PyTypeObject TensorMeta_Type;

bool is_tensor(PyObject* object);
bool meta_matches(PyObject* meta, PyObject* object);
// A new str saying how `object` differs, or nullptr (without an exception) when it does not.
PyObject* meta_difference(PyObject* meta, PyObject* object);

// Of the bytes that the two tensors can reach.  Strided tensors that interleave count as
// overlapping.
Overlap tensors_overlap(PyObject* a, PyObject* b);
// Whether none of the first m of n tensors overlaps with another of them.  Does not raise.
bool tensors_apart(PyObject* const* tensors, size_t m, size_t n);

int init_meta(PyObject* module);

}  // namespace magpy
