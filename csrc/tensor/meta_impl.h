// What TensorMeta holds, for the two files that compare with it.
//
// Owns: the layout of TensorMeta.  Called only by meta.cpp and pack.cpp.
#pragma once

#include "meta.h"

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace magpy {

// Why a tensor is never matched: its sizes are not plain numbers, or it is not a tensor of its own.
enum class Opaque : uint8_t { kNo, kSymbolic, kNested, kFunctorch, kForwardGradient, kNoMeta };

// Autocast keys are on every tensor or on none, depending on how it was made; what autocast does is
// TorchState's matter.
inline uint64_t comparable_keys(const c10::TensorImpl* impl) {
  return (impl->key_set() - c10::autocast_dispatch_keyset).raw_repr();
}

struct Gradient {
  bool requires_grad = false, is_leaf = true;
  uint8_t view = 0;  // of a view that requires grad: what autograd lets in-place operations on it
                     // do (`view_kind`), never 0
};

struct Meta {
  PyTypeObject* type = nullptr;  // owned
  uint64_t keys = 0;
  caffe2::TypeMeta dtype;
  std::optional<c10::Device> device;
  c10::Layout layout = c10::kStrided;
  Opaque opaque = Opaque::kNo;
  Gradient gradient;
  bool is_conj = false, is_neg = false, is_inference = false;
  bool has_version =
      true;  // an inference tensor without a version can be changed in inference mode only
  bool compare_offset = false;
  bool compare_view = true;  // also of what requires no grad
  bool ragged = false;  // a nested tensor of jagged layout: its parts tell its sizes
  int64_t offset = 0;
  uint64_t dynamic = 0;  // bit i: size i is not compared
  uint64_t free = 0;     // bit i: stride i is not compared
  std::vector<int64_t> sizes, strides;
  std::vector<int> inner;  // the dimension whose size and stride give this one's stride, or -1
};

struct MetaObject {
  PyObject_HEAD Meta* meta;
};

inline const Meta& meta_of(PyObject* object) { return *((MetaObject*)object)->meta; }

// The full comparison, except for the class.
bool impl_matches(const Meta& meta, c10::TensorImpl* impl);

}  // namespace magpy
