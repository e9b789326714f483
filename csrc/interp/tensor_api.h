// The table of C functions through which the torch-free extension reaches csrc/tensor.
//
// Owns: nothing but the layout of the table, which magpy._tensor fills in and offers as the capsule
// `magpy._tensor._api`, and which guards read.  Both are built from one checkout; `version` guards
// against a stale build of one of them.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

constexpr int kTensorApiVersion = 6;
constexpr const char* kTensorApiName = "magpy._tensor._api";

// How the ranges of memory of two tensors intersect.  Where they start together, operations take
// the tensors for one; where they do not, some raise (at::assert_no_partial_overlap), but only
// where one storage shows the memory of both; the last two are of two.
enum class Overlap : char { kNone, kSome, kFromStart, kSomeOfTwo, kFromStartOfTwo };

// None of these raises.  Objects are borrowed.
struct TensorApi {
  int version;
  PyTypeObject* meta_type;
  PyTypeObject* state_type;
  PyTypeObject* device_type;  // torch.device: compares by value
  bool (*matches)(PyObject* meta, PyObject* object);
  // A new str saying how object differs from meta, or nullptr when it does not.
  PyObject* (*difference)(PyObject* meta, PyObject* object);
  // Many tensors that are always the same objects.  The pack borrows both; free it before they die.
  void* (*pack)(PyObject* const* tensors, PyObject* const* metas, Py_ssize_t n);
  // The index of the first tensor that no longer matches, or -1.
  Py_ssize_t (*check_pack)(void* pack);
  void (*free_pack)(void* pack);
  Overlap (*overlaps)(PyObject* a, PyObject* b);
  // Whether none of the first m of n tensors overlaps with another of them.
  bool (*apart)(PyObject* const* tensors, size_t m, size_t n);
  bool (*state_matches)(PyObject* state);
  PyObject* (*state_difference)(PyObject* state);
  // A new reference to the gradient that has been accumulated in a tensor, or None; runs no
  // __torch_function__ and does not warn.
  PyObject* (*gradient)(PyObject* tensor);
};

}  // namespace magpy
