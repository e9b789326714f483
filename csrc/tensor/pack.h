// Many tensors that are always the same objects, compared quickly with what a guard remembers of
// them.
//
// Owns: the pack.  Does not own: what is compared and the full comparison (meta.h).  Called through
// the table in csrc/interp/tensor_api.h, with the GIL held.  Nothing throws.
//
// NOTE: [Quick comparison]
// Nothing tells of a change of a tensor's metadata, so that every call reads it, and reading memory
// is all that it costs.  A tensor's metadata lies in three objects (the Python object, the
// TensorImpl, the AutogradMeta), six to nine cache lines.  So
//   - tensors of one form stand together, by address: what is expected stays in registers, and no
//   branch depends on the tensor;
//   - the table has the addresses that a tensor's parts had when it was last compared in full: they
//   are read side by side instead of
//     one after the other, and some members ahead of their turn.  Each address is compared before
//     what lies there is believed;
//   - strides are not read where they follow from the sizes and from TensorImpl's flag that they
//   are contiguous.
// A tensor that fails the quick comparison is compared in full, and its place in the table is
// brought up to date if it still holds.
//
// NOTE: [Flags]
// TensorImpl has its dtype, its device and its flags in the word before its dispatch keys.  It is
// compared as a whole with what it was at the last full comparison.  Where these fields lie is the
// compiler's knowledge; that the flags are among them is tried when the module is loaded
// (`init_pack`), and where it were otherwise every comparison would be full.
#pragma once

#include "meta.h"

namespace magpy {

void* pack_tensors(PyObject* const* tensors, PyObject* const* metas, Py_ssize_t n);
Py_ssize_t check_pack(void* pack);
void free_pack(void* pack);

void init_pack();

}  // namespace magpy
