// See meta.h.
#include "meta.h"

#include "meta_impl.h"
#include "ref.h"

#include <c10/core/Layout.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace magpy {

namespace {

const char* opaque_text(Opaque opaque) {
  switch (opaque) {
    case Opaque::kNo: return "";
    case Opaque::kSymbolic: return "a tensor with symbolic sizes";
    case Opaque::kNested: return "a nested tensor";
    case Opaque::kFunctorch: return "a tensor inside a functorch transform (vmap, grad, ...)";
    case Opaque::kForwardGradient: return "a tensor with a forward-mode gradient";
    case Opaque::kNoMeta: return "an undefined tensor";
  }
  return "";
}

// Which in-place operations autograd forbids follows from how the view was made, and from whether
// it is one of a leaf.
constexpr uint8_t kView = 1, kOfLeaf = 2, kMade = 4;

uint8_t view_kind(const torch::autograd::DifferentiableViewMeta* view) {
  if (!view->has_bw_view()) return kView;
  const bool of_leaf = view->get_backward_view().base_.is_leaf();
  return (uint8_t)(kView + (of_leaf ? kOfLeaf : 0) + kMade * (uint8_t)view->get_creation_meta());
}

Gradient gradient_of(const c10::TensorImpl* impl) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(impl->autograd_meta());
  if (!meta) return {};
  bool has_function = meta->grad_fn_.defined();
  bool requires_grad = meta->requires_grad_ || has_function;
  if (!meta->is_view_) return {requires_grad, !has_function, 0};
  auto* view = static_cast<torch::autograd::DifferentiableViewMeta*>(meta);
  // A view requires grad with its base, and is given its function when it is asked for it
  // (VariableHooks::grad_fn in torch/csrc/autograd/variable.cpp).
  if (view->has_bw_view() && view->requires_grad()) {
    requires_grad = true;
    has_function |= view->get_backward_view().base_.requires_grad() &&
                    impl->version_counter().enabled() &&
                    view->get_attr_version() != impl->version_counter().current_version();
  }
  // One that does not require grad yet may do so once it is changed, if how it was made does not
  // forbid that.
  const bool plain =
      !view->has_bw_view() || view->get_creation_meta() == torch::autograd::CreationMeta::DEFAULT;
  return {requires_grad, !has_function, requires_grad || !plain ? view_kind(view) : (uint8_t)0};
}

bool has_forward_gradient(const c10::TensorImpl* impl) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(impl->autograd_meta());
  return meta && meta->fw_grad_ && !meta->fw_grad_->empty();
}

Opaque opaque_of(const c10::TensorImpl* impl) {
  if (impl == c10::UndefinedTensorImpl::singleton()) return Opaque::kNoMeta;
  if (impl->has_symbolic_sizes_strides()) return Opaque::kSymbolic;
  auto keys = impl->key_set();
  if (keys.has(c10::DispatchKey::NestedTensor)) return Opaque::kNested;
  if (keys.has(c10::DispatchKey::FuncTorchBatched) ||
      keys.has(c10::DispatchKey::FuncTorchGradWrapper)) {
    return Opaque::kFunctorch;
  }
  return has_forward_gradient(impl) ? Opaque::kForwardGradient : Opaque::kNo;
}

// For each dimension the one within it that makes its stride: strides[i] == sizes[k] * strides[k].
// A tensor of other sizes that is laid out in the same way has the strides that follow.
std::vector<int> inner_dimensions(const std::vector<int64_t>& sizes,
                                  const std::vector<int64_t>& strides) {
  size_t n = strides.size();  // other layouts than strided have none
  std::vector<int> order(n), inner(n, -1);
  std::iota(order.begin(), order.end(), 0);
  // Between equal strides a dimension of size 1 is the inner one.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return strides[a] != strides[b] ? strides[a] < strides[b] : sizes[a] < sizes[b];
  });
  int last = -1;
  for (int dim : order) {
    if (last >= 0 && strides[dim] == std::max<int64_t>(sizes[last], 1) * strides[last])
      inner[dim] = last;
    if (strides[dim] != 0) last = dim;  // an expanded dimension takes no memory
  }
  return inner;
}

void record_shape(Meta& meta, c10::TensorImpl* impl) {
  if (meta.ragged) return;
  auto& shape = impl->sizes_and_strides();
  size_t n = shape.size();
  meta.sizes.assign(shape.sizes_data(), shape.sizes_data() + n);
  if (meta.layout != c10::kStrided) return;
  meta.strides.assign(shape.strides_data(), shape.strides_data() + n);
  meta.offset = impl->storage_offset();
}

bool record(Meta& meta, PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  meta.type = Py_TYPE(object);
  Py_INCREF(meta.type);
  meta.opaque = opaque_of(impl);
  if (meta.opaque == Opaque::kNoMeta) return true;
  meta.keys = comparable_keys(impl);
  meta.dtype = impl->dtype();
  meta.device = impl->device_type() == c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES
                    ? std::nullopt
                    : std::optional(impl->device());
  meta.layout = impl->layout();
  meta.ragged = meta.opaque == Opaque::kSymbolic && meta.layout == c10::kJagged;
  if (meta.ragged) meta.opaque = has_forward_gradient(impl) ? Opaque::kForwardGradient : Opaque::kNo;
  meta.gradient = gradient_of(impl);
  meta.is_conj = tensor.is_conj();
  meta.is_neg = tensor.is_neg();
  meta.is_inference = tensor.is_inference();
  meta.has_version = impl->version_counter().enabled();
  if (meta.opaque == Opaque::kNo) record_shape(meta, impl);
  return true;
}

bool strides_match(const Meta& meta, const int64_t* sizes, const int64_t* strides) {
  size_t n = meta.sizes.size();
  if (!(meta.dynamic | meta.free)) return std::equal(strides, strides + n, meta.strides.data());
  for (size_t i = 0; i < n; i++) {
    if (i < 64 && (meta.free >> i & 1)) continue;
    int k = meta.inner[i];
    int64_t expected = k < 0 ? meta.strides[i] : std::max<int64_t>(sizes[k], 1) * strides[k];
    if (strides[i] != expected) return false;
  }
  return true;
}

bool shape_matches(const Meta& meta, c10::TensorImpl* impl) {
  if (meta.ragged || impl->has_symbolic_sizes_strides())
    return meta.ragged && impl->has_symbolic_sizes_strides();
  auto& shape = impl->sizes_and_strides();
  size_t n = meta.sizes.size();
  if (shape.size() != n) return false;
  const int64_t* sizes = shape.sizes_data();
  if (!meta.dynamic) {
    if (!std::equal(sizes, sizes + n, meta.sizes.data())) return false;
  } else {
    for (size_t i = 0; i < n; i++) {
      if (!(i < 64 && (meta.dynamic >> i & 1)) && sizes[i] != meta.sizes[i]) return false;
    }
  }
  if (meta.layout != c10::kStrided) return true;
  return strides_match(meta, sizes, shape.strides_data()) &&
         (!meta.compare_offset || impl->storage_offset() == meta.offset);
}

bool same_gradient(const Gradient& found, const Meta& meta) {
  const Gradient& expected = meta.gradient;
  return found.requires_grad == expected.requires_grad && found.is_leaf == expected.is_leaf &&
         (found.view == expected.view || !(meta.compare_view || expected.requires_grad));
}

template <typename List>
std::string shape_text(const List& sizes) {
  std::ostringstream out;
  out << '[';
  for (size_t i = 0; i < sizes.size(); i++) out << (i ? ", " : "") << sizes[i];
  out << ']';
  return out.str();
}

template <typename A, typename B>
std::string instead(const char* what, const A& found, const B& expected) {
  std::ostringstream out;
  out << what << ' ' << found << " instead of " << expected;
  return out.str();
}

const char* yes_no(bool value) { return value ? "True" : "False"; }

std::string gradient_difference(const Gradient& found, const Gradient& expected) {
  if (found.requires_grad != expected.requires_grad) {
    return instead("requires_grad", yes_no(found.requires_grad), yes_no(expected.requires_grad));
  }
  if (found.is_leaf != expected.is_leaf)
    return instead("is_leaf", yes_no(found.is_leaf), yes_no(expected.is_leaf));
  if (!found.view || !expected.view) {
    return found.view ? "a view instead of a tensor of its own"
                      : "a tensor of its own instead of a view";
  }
  if ((found.view ^ expected.view) & kOfLeaf) {
    return found.view & kOfLeaf ? "a view of a leaf instead of another view"
                                : "another view instead of a view of a leaf";
  }
  return "a view that was made in another way";
}

// The first difference in words; empty when there is none.
std::string difference(const Meta& meta, PyObject* object) {
  if (!is_tensor(object)) return instead("type", Py_TYPE(object)->tp_name, meta.type->tp_name);
  if (Py_TYPE(object) != meta.type)
    return instead("class", Py_TYPE(object)->tp_name, meta.type->tp_name);
  if (meta.opaque != Opaque::kNo)
    return std::string(opaque_text(meta.opaque)) + " cannot be compared";
  Meta found;
  record(found, object);
  Py_CLEAR(found.type);
  if (found.opaque != Opaque::kNo) return opaque_text(found.opaque);
  if (found.dtype != meta.dtype) {
    return instead("dtype", c10::toString(found.dtype.toScalarType()),
                   c10::toString(meta.dtype.toScalarType()));
  }
  if (found.device != meta.device) {
    return instead("device", found.device ? found.device->str() : "none",
                   meta.device ? meta.device->str() : "none");
  }
  if (found.layout != meta.layout) return instead("layout", found.layout, meta.layout);
  c10::TensorImpl* impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (!shape_matches(meta, impl)) {
    bool same_sizes = found.sizes.size() == meta.sizes.size();
    for (size_t i = 0; same_sizes && i < meta.sizes.size(); i++) {
      same_sizes = found.sizes[i] == meta.sizes[i] || (i < 64 && (meta.dynamic >> i & 1));
    }
    if (!same_sizes) return instead("shape", shape_text(found.sizes), shape_text(meta.sizes));
    if (!strides_match(meta, found.sizes.data(), found.strides.data())) {
      return instead("strides", shape_text(found.strides), shape_text(meta.strides));
    }
    return instead("storage offset", found.offset, meta.offset);
  }
  if (!same_gradient(found.gradient, meta))
    return gradient_difference(found.gradient, meta.gradient);
  if (found.is_conj != meta.is_conj)
    return instead("is_conj", yes_no(found.is_conj), yes_no(meta.is_conj));
  if (found.is_neg != meta.is_neg)
    return instead("is_neg", yes_no(found.is_neg), yes_no(meta.is_neg));
  if (found.is_inference != meta.is_inference) {
    return instead("is_inference", yes_no(found.is_inference), yes_no(meta.is_inference));
  }
  if (found.has_version != meta.has_version) {
    return found.has_version ? "an inference tensor with a version"
                             : "an inference tensor without a version";
  }
  if (found.keys != meta.keys) {
    return instead("dispatch keys",
                   c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, found.keys)),
                   c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, meta.keys)));
  }
  return "";
}

// ---------------------------------------------------------------- the Python type

int parse_dims(PyObject* dims, uint64_t& mask) {
  if (!dims || dims == Py_None) return 0;
  if (PyLong_Check(dims)) {
    mask = PyLong_AsUnsignedLongLong(dims);
    return PyErr_Occurred() ? -1 : 0;
  }
  const Ref fast = Ref::steal(
      PySequence_Fast(dims, "dimensions must be a bit mask or a sequence of dimensions"));
  if (!fast) return -1;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); i++) {
    long dim = PyLong_AsLong(PySequence_Fast_GET_ITEM(fast.get(), i));
    if (dim < 0 || dim >= 64) {
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a dimension must be between 0 and 63");
      return -1;
    }
    mask |= uint64_t(1) << dim;
  }
  return 0;
}

PyObject* meta_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"tensor", "offset", "dims", "strides", nullptr};
  PyObject *tensor, *dims = nullptr, *strides = nullptr;
  int offset = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pOO:TensorMeta", const_cast<char**>(names),
                                   &tensor, &offset, &dims, &strides)) {
    return nullptr;
  }
  if (!is_tensor(tensor)) {
    PyErr_Format(PyExc_TypeError, "a tensor is needed, not %.100s", Py_TYPE(tensor)->tp_name);
    return nullptr;
  }
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = (MetaObject*)made.get();
  self->meta = new (std::nothrow) Meta();
  if (!self->meta) return PyErr_NoMemory();
  try {
    record(*self->meta, tensor);
    self->meta->inner = inner_dimensions(self->meta->sizes, self->meta->strides);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  self->meta->compare_offset = offset != 0;
  if (parse_dims(dims, self->meta->dynamic) < 0 || parse_dims(strides, self->meta->free) < 0)
    return nullptr;
  return made.release();
}

int meta_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* meta = ((MetaObject*)object)->meta;
  if (meta) Py_VISIT(meta->type);
  return 0;
}

int meta_clear(PyObject*) {
  return 0;
}  // a class outlives its metas; whoever refers to both clears itself

void meta_dealloc(PyObject* object) {
  auto* self = (MetaObject*)object;
  PyObject_GC_UnTrack(object);
  if (self->meta) Py_XDECREF(self->meta->type);
  delete self->meta;
  Py_TYPE(object)->tp_free(object);
}

PyObject* meta_repr(PyObject* object) {
  const Meta& meta = meta_of(object);
  if (meta.opaque != Opaque::kNo)
    return PyUnicode_FromFormat("TensorMeta(%s)", opaque_text(meta.opaque));
  std::string sizes;
  for (size_t i = 0; i < meta.sizes.size(); i++) {
    sizes += (i ? ", " : "") +
             (i < 64 && (meta.dynamic >> i & 1) ? std::string("*") : std::to_string(meta.sizes[i]));
  }
  return PyUnicode_FromFormat("TensorMeta(%s, [%s], %s, %s%s)", meta.type->tp_name, sizes.c_str(),
                              c10::toString(meta.dtype.toScalarType()),
                              meta.device ? meta.device->str().c_str() : "no device",
                              meta.gradient.requires_grad ? ", requires_grad" : "");
}

PyObject* meta_py_matches(PyObject* self, PyObject* tensor) {
  return PyBool_FromLong(meta_matches(self, tensor));
}

PyObject* meta_py_difference(PyObject* self, PyObject* tensor) {
  PyObject* text = meta_difference(self, tensor);
  if (!text && !PyErr_Occurred()) Py_RETURN_NONE;
  return text;
}

PyObject* meta_ignore_view(PyObject* self, PyObject*) {
  ((MetaObject*)self)->meta->compare_view = false;
  Py_RETURN_NONE;
}

PyObject* shape_tuple(const std::vector<int64_t>& values) {
  Ref tuple = Ref::steal(PyTuple_New((Py_ssize_t)values.size()));
  for (size_t i = 0; tuple && i < values.size(); i++) {
    PyObject* value = PyLong_FromLongLong(values[i]);
    if (!value) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), (Py_ssize_t)i, value);
  }
  return tuple.release();
}

PyObject* get_shape(PyObject* self, void*) { return shape_tuple(meta_of(self).sizes); }
PyObject* get_strides(PyObject* self, void*) { return shape_tuple(meta_of(self).strides); }
PyObject* get_inner(PyObject* self, void*) {
  return shape_tuple({meta_of(self).inner.begin(), meta_of(self).inner.end()});
}
PyObject* get_opaque(PyObject* self, void*) {
  const Meta& meta = meta_of(self);
  if (meta.opaque == Opaque::kNo) Py_RETURN_NONE;
  return PyUnicode_FromString(opaque_text(meta.opaque));
}

PyMethodDef meta_methods[] = {
    {"matches", meta_py_matches, METH_O,
     "matches(object) -> bool: is it a tensor like the one recorded?"},
    {"difference", meta_py_difference, METH_O, "difference(object) -> str | None: how it differs."},
    {"ignore_view", meta_ignore_view, METH_NOARGS,
     "ignore_view() -> None: what requires no grad may be a view or none."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef meta_getset[] = {
    {"shape", get_shape, nullptr, "the sizes when it was recorded", nullptr},
    {"strides", get_strides, nullptr, "the strides when it was recorded", nullptr},
    {"inner", get_inner, nullptr,
     "for each dimension the one whose size and stride give its stride, or -1", nullptr},
    {"opaque", get_opaque, nullptr, "why nothing ever matches, or None", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// ---------------------------------------------------------------- memory

struct Range {
  const char *first = nullptr,
             *last = nullptr;  // of bytes, both inclusive; empty when first is nullptr
  const void* storage = nullptr;
  int64_t low = 0, high = -1;  // byte offsets within the storage
};

bool range_of(const at::Tensor& tensor, Range& range) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || impl->layout() != c10::kStrided || impl->has_symbolic_sizes_strides())
    return false;
  auto& shape = impl->sizes_and_strides();
  int64_t size = (int64_t)impl->itemsize();
  int64_t reach = 0;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape.size_at(i) == 0) return false;
    reach += (shape.size_at(i) - 1) * shape.stride_at(i);
  }
  range.low = impl->storage_offset() * size;
  range.high = range.low + reach * size + size - 1;
  const at::Storage& storage = impl->unsafe_storage();
  range.storage = storage.unsafeGetStorageImpl();
  if (!range.storage) return false;
  auto* data = (const char*)storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
  if (data) {
    range.first = data + range.low;
    range.last = data + range.high;
  }
  return true;
}

// The tensors that hold the memory: a sparse tensor's parts, or the tensor itself.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case c10::kSparse: return {tensor._indices(), tensor._values()};
    case c10::kSparseCsr:
    case c10::kSparseBsr: return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case c10::kSparseCsc:
    case c10::kSparseBsc: return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default: return {tensor};
  }
}

template <class T>
Overlap of_ranges(T a_first, T a_last, T b_first, T b_last) {
  if (a_first > b_last || b_first > a_last) return Overlap::kNone;
  return a_first == b_first ? Overlap::kFromStart : Overlap::kSome;
}

Overlap strided_overlap(const at::Tensor& a, const at::Tensor& b) {
  Range x, y;
  if (!range_of(a, x) || !range_of(b, y)) return Overlap::kNone;
  if (x.storage == y.storage) return of_ranges(x.low, x.high, y.low, y.high);
  // Two storages over one memory (torch.from_numpy twice).
  if (!x.first || !y.first || a.device() != b.device()) return Overlap::kNone;
  switch (of_ranges(x.first, x.last, y.first, y.last)) {
    case Overlap::kSome: return Overlap::kSomeOfTwo;
    case Overlap::kFromStart: return Overlap::kFromStartOfTwo;
    default: return Overlap::kNone;
  }
}

}  // namespace

bool impl_matches(const Meta& meta, c10::TensorImpl* impl) {
  // The device, the layout, conj, neg and inference are in the dispatch keys except for the
  // device's index.
  if (meta.opaque != Opaque::kNo || comparable_keys(impl) != meta.keys ||
      impl->dtype() != meta.dtype)
    return false;
  if (meta.device && meta.device->has_index() && impl->device() != *meta.device) return false;
  if (impl->version_counter().enabled() != meta.has_version) return false;
  if (!same_gradient(gradient_of(impl), meta) || has_forward_gradient(impl)) return false;
  return shape_matches(meta, impl);
}

PyTypeObject TensorMeta_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// By the type's own mro: a class that pretends to be a tensor (__instancecheck__, __class__) is
// none.
bool is_tensor(PyObject* object) {
  return THPVariableClass && (THPVariable_CheckExact(object) ||
                              PyType_IsSubtype(Py_TYPE(object), (PyTypeObject*)THPVariableClass));
}

bool meta_matches(PyObject* object, PyObject* tensor) {
  const Meta& meta = meta_of(object);
  if (Py_TYPE(tensor) != meta.type) return false;
  try {
    return impl_matches(meta, THPVariable_Unpack(tensor).unsafeGetTensorImpl());
  } catch (const std::exception&) {
    return false;
  }
}

PyObject* meta_difference(PyObject* object, PyObject* tensor) {
  try {
    std::string text = difference(meta_of(object), tensor);
    if (text.empty()) return nullptr;
    PyObject* result = PyUnicode_FromStringAndSize(text.data(), (Py_ssize_t)text.size());
    if (!result) PyErr_Clear();
    return result;
  } catch (const std::exception& error) {
    PyObject* result = PyUnicode_FromString(error.what());
    if (!result) PyErr_Clear();
    return result;
  }
}

Overlap tensors_overlap(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) return Overlap::kNone;
  if (a == b) return Overlap::kFromStart;
  try {
    const at::Tensor &x = THPVariable_Unpack(a), &y = THPVariable_Unpack(b);
    if (x.layout() == c10::kStrided && y.layout() == c10::kStrided) return strided_overlap(x, y);
    for (const at::Tensor& p : parts_of(x)) {
      for (const at::Tensor& q : parts_of(y)) {
        if (strided_overlap(p, q) != Overlap::kNone) return Overlap::kSome;
      }
    }
    return Overlap::kNone;
  } catch (const std::exception&) {
    PyErr_Clear();
    return Overlap::kSome;
  }
}

namespace {

// So few pairs are looked at one by one.
constexpr size_t kFewPairs = 64;

bool pairs_apart(PyObject* const* tensors, size_t m, size_t n) {
  for (size_t i = 0; i < m; i++) {
    for (size_t j = i + 1; j < n; j++) {
      if (tensors_overlap(tensors[i], tensors[j]) != Overlap::kNone) return false;
    }
  }
  return true;
}

// Whether the ranges of addresses say that they are apart; false also where they say nothing.
bool ranges_apart(PyObject* const* tensors, size_t m, size_t n) {
  struct Span {
    const char *first, *last;
    bool written;
  };
  std::vector<Span> spans;
  spans.reserve(n);
  for (size_t i = 0; i < n; i++) {
    if (!is_tensor(tensors[i])) return false;
    const at::Tensor& tensor = THPVariable_Unpack(tensors[i]);
    if (tensor.layout() != c10::kStrided) return false;
    Range range;
    if (!range_of(tensor, range)) {
      if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && tensor.numel() == 0)
        continue;
      return false;
    }
    if (!range.first) return false;
    spans.push_back({range.first, range.last, i < m});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::less<const char*>()(a.first, b.first);
  });
  const char *end = nullptr,
             *written = nullptr;  // of all spans so far, and of those that are written
  for (const Span& span : spans) {
    const char* before = span.written ? end : written;
    if (before && !std::less<const char*>()(before, span.first)) return false;
    if (!end || std::less<const char*>()(end, span.last)) end = span.last;
    if (span.written && (!written || std::less<const char*>()(written, span.last)))
      written = span.last;
  }
  return true;
}

}  // namespace

bool tensors_apart(PyObject* const* tensors, size_t m, size_t n) {
  if (m * n > kFewPairs) {
    try {
      if (ranges_apart(tensors, m, n)) return true;
    } catch (const std::exception&) {
      PyErr_Clear();
    }
  }
  return pairs_apart(tensors, m, n);
}

int init_meta(PyObject* module) {
  TensorMeta_Type.tp_name = "magpy._tensor.TensorMeta";
  TensorMeta_Type.tp_basicsize = sizeof(MetaObject);
  TensorMeta_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  TensorMeta_Type.tp_doc = "What a guard remembers of a tensor.";
  TensorMeta_Type.tp_new = meta_new;
  TensorMeta_Type.tp_dealloc = meta_dealloc;
  TensorMeta_Type.tp_traverse = meta_traverse;
  TensorMeta_Type.tp_clear = meta_clear;
  TensorMeta_Type.tp_repr = meta_repr;
  TensorMeta_Type.tp_methods = meta_methods;
  TensorMeta_Type.tp_getset = meta_getset;
  if (PyType_Ready(&TensorMeta_Type) < 0) return -1;
  return PyModule_AddObjectRef(module, "TensorMeta", (PyObject*)&TensorMeta_Type);
}

}  // namespace magpy
