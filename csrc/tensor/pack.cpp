// See pack.h.
#include "pack.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "meta_impl.h"

namespace magpy {

namespace {

using torch::autograd::AutogradMeta;

// ---------------------------------------------------------------- fields

// Fields that only functions of other libraries, or none, tell of.  An explicit instantiation may
// name them.
template <typename Field, typename Field::type member>
struct Reveal {
  friend typename Field::type field_of(Field) { return member; }
};

struct AutogradField {
  using type = std::unique_ptr<c10::AutogradMetaInterface> c10::TensorImpl::*;
  friend type field_of(AutogradField);
};
struct DtypeField {
  using type = caffe2::TypeMeta c10::TensorImpl::*;
  friend type field_of(DtypeField);
};
struct KeysField {
  using type = c10::DispatchKeySet c10::TensorImpl::*;
  friend type field_of(KeysField);
};

template struct Reveal<AutogradField, &c10::TensorImpl::autograd_meta_>;
template struct Reveal<DtypeField, &c10::TensorImpl::data_type_>;
template struct Reveal<KeysField, &c10::TensorImpl::key_set_>;

const AutogradMeta* autograd_of(const c10::TensorImpl* impl) {
  return static_cast<const AutogradMeta*>((impl->*field_of(AutogradField())).get());
}

// See NOTE: [Flags].
uint64_t flags_of(const c10::TensorImpl* impl) {
  uint64_t word;
  std::memcpy(&word, (const char*)&(impl->*field_of(DtypeField())), sizeof word);
  return word;
}

bool flags_are_there() {
  auto made = c10::make_intrusive<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   caffe2::TypeMeta::Make<float>(),
                                                   c10::Device(c10::DeviceType::CPU));
  auto* impl = made.get();
  if ((const char*)&(impl->*field_of(KeysField())) -
          (const char*)&(impl->*field_of(DtypeField())) !=
      sizeof(uint64_t))
    return false;
  auto flags = [impl](c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    impl->set_sizes_and_strides(sizes, strides);
    return flags_of(impl);
  };
  constexpr int64_t kRows = 2, kColumns = 3;
  uint64_t contiguous = flags({kRows, kColumns}, {kColumns, 1});
  return flags({kRows, kColumns}, {1, kRows}) != contiguous &&
         flags({kRows, kColumns}, {kColumns + 1, 1}) != contiguous &&
         flags({kRows, kColumns}, {kColumns, 1}) == contiguous &&
         flags({kColumns, kRows}, {kRows, 1}) == contiguous;
}

bool flags_known = false;

// ---------------------------------------------------------------- packs

// What the tensors of a group have in common.
struct Form {
  static constexpr size_t kDims = 5;  // as many as a tensor holds within itself
  const PyTypeObject* type = nullptr;
  uint64_t keys = 0;
  size_t ndim = 0;
  std::array<int64_t, kDims> sizes{}, strides{};
  bool follows = false;  // the strides follow from the sizes, and from the flags
  bool requires_grad = false;
  bool has_index = false;  // of the device
  c10::Device device{c10::DeviceType::CPU};

  bool operator==(const Form& other) const {
    return type == other.type && keys == other.keys && ndim == other.ndim && sizes == other.sizes &&
           strides == other.strides && requires_grad == other.requires_grad &&
           has_index == other.has_index && device == other.device;
  }
};

// One tensor of a pack, as it was when it was last compared in full: nothing before the first time.
struct Member {
  PyObject* object;
  const c10::TensorImpl* impl;
  const AutogradMeta* autograd;  // never nullptr
  uint64_t flags;
};

struct Group {
  Form form;
  size_t begin, end;  // in Pack::members
};

struct Pack {
  std::vector<Group> groups;
  std::vector<Member>
      members;  // those of the groups, then those that have no form, then as many as are read ahead
  std::vector<const Meta*> metas;    // parallel to members, but for the last
  std::vector<Py_ssize_t> original;  // place of each member in the caller's order
  size_t grouped = 0;
};

constexpr size_t kAhead = 12;

// A class in Python that may answer for its device and its strides.
bool answers_itself(const Meta& meta) {
  return c10::DispatchKeySet(c10::DispatchKeySet::RAW, meta.keys).has(c10::DispatchKey::Python);
}

// The strides of a contiguous tensor, none of which could be another: a size of 1 leaves its stride
// open.
bool strides_follow(const Meta& meta) {
  if (meta.layout != c10::kStrided || answers_itself(meta)) return false;
  int64_t step = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (meta.sizes[i] <= 1 || meta.strides[i] != step) return false;
    step *= meta.sizes[i];
  }
  return true;
}

// False: only the full comparison can tell.
bool form_of(const Meta& meta, Form& form) {
  if (!flags_known || meta.opaque != Opaque::kNo || meta.layout != c10::kStrided ||
      meta.sizes.size() > Form::kDims || meta.dynamic || meta.free || meta.compare_offset ||
      meta.gradient.view || !meta.gradient.is_leaf || meta.is_inference) {
    return false;
  }
  form.has_index = meta.device && meta.device->has_index();
  if (form.has_index && answers_itself(meta)) return false;
  if (form.has_index) form.device = *meta.device;
  form.type = meta.type;
  form.keys = meta.keys;
  form.ndim = meta.sizes.size();
  std::copy(meta.sizes.begin(), meta.sizes.end(), form.sizes.begin());
  std::copy(meta.strides.begin(), meta.strides.end(), form.strides.begin());
  form.follows = strides_follow(meta);
  form.requires_grad = meta.gradient.requires_grad;
  return true;
}

// Stands for the autograd metadata of tensors that have none, which means the same.
const AutogradMeta* no_autograd() {
  static const auto* none = new AutogradMeta();
  return none;
}

const c10::TensorImpl* impl_of(PyObject* object) {
  return THPVariable_Unpack(object).unsafeGetTensorImpl();
}

// Of what may be gone by now: only addresses.
void prefetch(const Member& member) {
  constexpr size_t kFirst =
      3 * sizeof(void*);  // the pointer to the autograd metadata, the first field that is read
  constexpr size_t kLast = sizeof(c10::TensorImpl) - 2 * sizeof(uint64_t);
  __builtin_prefetch(&member.object->ob_type);
  __builtin_prefetch((const void*)((uintptr_t)member.impl + kFirst));
  __builtin_prefetch((const void*)((uintptr_t)member.impl + kLast));
  __builtin_prefetch(&member.autograd->grad_fn_);
  __builtin_prefetch(&member.autograd->requires_grad_);
}

// The first of the members whose quick comparison fails, which means only that the full one has to
// decide; `end` if none does.
template <size_t kDims, bool kStrides>
size_t first_unlike(const Form& form, const Member* members, const AutogradMeta* none, size_t begin,
                    size_t end) {
  for (size_t k = begin; k < end; k++) {
    const Member& member = members[k];
    prefetch(members[k + kAhead]);
    const c10::TensorImpl* impl = member.impl;
    // The object can have been given another implementation (torch.utils.swap_tensors), which then
    // has to be the one to look at.
    if (impl_of(member.object) != impl) return k;
    const AutogradMeta* autograd = member.autograd;
    if (autograd_of(impl) != (autograd == none ? nullptr : autograd)) return k;
    const auto& shape = const_cast<c10::TensorImpl*>(impl)->sizes_and_strides();
    if (shape.size() != kDims) return k;
    const int64_t *sizes = shape.sizes_data(), *strides = shape.strides_data();
    uint64_t difference = (comparable_keys(impl) ^ form.keys) | (flags_of(impl) ^ member.flags);
    for (size_t i = 0; i < kDims; i++) {
      difference |= (uint64_t)(sizes[i] ^ form.sizes[i]);
      if (kStrides) difference |= (uint64_t)(strides[i] ^ form.strides[i]);
    }
    difference |= (uintptr_t)Py_TYPE(member.object) ^ (uintptr_t)form.type;
    difference |= (uintptr_t)autograd->grad_fn_.get() | (uintptr_t)autograd->fw_grad_.get();
    // A view requires grad when its base does.
    difference |=
        (uint64_t)(autograd->requires_grad_ ^ form.requires_grad) | (uint64_t)autograd->is_view_;
    difference |= (uint64_t)impl->has_symbolic_sizes_strides();
    if (difference || (form.has_index && impl->device() != form.device)) return k;
  }
  return end;
}

template <bool kStrides>
size_t first_unlike(const Form& form, const Member* members, const AutogradMeta* none, size_t begin,
                    size_t end) {
  switch (form.ndim) {
    case 0: return first_unlike<0, kStrides>(form, members, none, begin, end);
    case 1: return first_unlike<1, kStrides>(form, members, none, begin, end);
    case 2: return first_unlike<2, kStrides>(form, members, none, begin, end);
    case 3: return first_unlike<3, kStrides>(form, members, none, begin, end);
    case 4: return first_unlike<4, kStrides>(form, members, none, begin, end);
    default: return first_unlike<Form::kDims, kStrides>(form, members, none, begin, end);
  }
}

// Compares in full, and notes how the tensor is by now.
bool matches_in_full(Pack& pack, size_t k) {
  Member& member = pack.members[k];
  const Meta& meta = *pack.metas[k];
  if (Py_TYPE(member.object) != meta.type) return false;
  const c10::TensorImpl* impl = impl_of(member.object);
  if (!impl_matches(meta, const_cast<c10::TensorImpl*>(impl))) return false;
  // Without the flag from which its strides follow it is compared in full again.
  bool quick = flags_known && (!strides_follow(meta) || impl->is_contiguous());
  const AutogradMeta* autograd = autograd_of(impl);
  member = {member.object, quick ? impl : nullptr, autograd ? autograd : no_autograd(),
            quick ? flags_of(impl) : 0};
  return true;
}

}  // namespace

void* pack_tensors(PyObject* const* tensors, PyObject* const* metas, Py_ssize_t n) {
  struct Slot {
    PyObject* object;
    const Meta* meta;
    size_t form;
    Py_ssize_t original;
  };
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!is_tensor(tensors[i]) || !PyObject_TypeCheck(metas[i], &TensorMeta_Type)) return nullptr;
  }
  try {
    std::vector<Form> forms;
    std::vector<Slot> slots;
    for (Py_ssize_t i = 0; i < n; i++) {
      const Meta& meta = meta_of(metas[i]);
      Form form;
      size_t index = SIZE_MAX;
      if (form_of(meta, form)) {
        // From the end: neighbours are often alike.
        auto found = std::find(forms.rbegin(), forms.rend(), form);
        index = found == forms.rend() ? forms.size() : (size_t)(forms.rend() - found) - 1;
        if (index == forms.size()) forms.push_back(form);
      }
      slots.push_back({tensors[i], &meta, index, i});
    }
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
      return a.form != b.form ? a.form < b.form : impl_of(a.object) < impl_of(b.object);
    });
    auto pack = std::make_unique<Pack>();
    for (const Slot& slot : slots) {
      size_t k = pack->members.size();
      pack->members.push_back({slot.object, nullptr, no_autograd(), 0});
      pack->metas.push_back(slot.meta);
      pack->original.push_back(slot.original);
      if (slot.form == SIZE_MAX) continue;
      if (k == 0 || slots[k - 1].form != slot.form)
        pack->groups.push_back({forms[slot.form], k, k});
      pack->groups.back().end = pack->grouped = k + 1;
    }
    if (n) pack->members.resize(n + kAhead, Member(pack->members.back()));
    return pack.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Py_ssize_t check_pack(void* opaque_pack) {
  auto& pack = *(Pack*)opaque_pack;
  const AutogradMeta* none = no_autograd();
  size_t k = 0;
  try {
    for (const Group& group : pack.groups) {
      const Form& form = group.form;
      for (k = group.begin;; k++) {
        k = form.follows ? first_unlike<false>(form, pack.members.data(), none, k, group.end)
                         : first_unlike<true>(form, pack.members.data(), none, k, group.end);
        if (k == group.end) break;
        if (!matches_in_full(pack, k)) return pack.original[k];
      }
    }
    for (k = pack.grouped; k < pack.metas.size(); k++) {
      if (!matches_in_full(pack, k)) return pack.original[k];
    }
  } catch (const std::exception&) {
    return pack.original[k];
  }
  return -1;
}

void free_pack(void* pack) { delete (Pack*)pack; }

void init_pack() {
  try {
    flags_known = flags_are_there();
  } catch (const std::exception&) {
    flags_known = false;
  }
}

}  // namespace magpy
