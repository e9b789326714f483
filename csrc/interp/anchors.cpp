// See anchors.h.
#include "anchors.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "leaf.h"
#include "signals.h"
#include "tensor_access.h"

namespace magpy {

PyObject* absent = nullptr;

namespace {

#if PY_VERSION_HEX >= 0x030C0000
#define MAGPY_DICT_WATCHERS 1
#else
#define MAGPY_DICT_WATCHERS 0
#endif

#if MAGPY_DICT_WATCHERS
struct Subscriber {
  Anchors* anchors;
  uint32_t index;
};

struct WatchedDict {
  bool armed = false;  // somebody relies on hearing of the next change
  std::vector<Subscriber> subscribers;
};

// Leaked on purpose: the watcher may be called while the interpreter shuts down.
std::unordered_map<PyObject*, WatchedDict>& watched_dicts() {
  static auto* dicts = new std::unordered_map<PyObject*, WatchedDict>();
  return *dicts;
}

int on_dict_event(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  auto& dicts = watched_dicts();
  auto it = dicts.find(dict);
  if (it == dicts.end() || !it->second.armed) return 0;
  it->second.armed = false;
  for (const Subscriber& subscriber : it->second.subscribers)
    subscriber.anchors->mark_dirty(subscriber.index);
  return 0;
}

// Will the watcher hear of every change to `dict`?  An instance's __dict__ that shares the values
// inlined into the instance (3.13) does not tell watchers of `instance.x = 1`.  Adding and removing
// a key gives it a table of its own, for good.
bool make_watchable(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  if (!((PyDictObject*)dict)->ma_values) return true;
  const Ref key = Ref::steal(PyObject_CallNoArgs((PyObject*)&PyBaseObject_Type));
  // A value that the cycle collector tracks, so that it tracks the dict too: until now the instance
  // showed it the values.
  const Ref value = Ref::steal(PyList_New(0));
  bool done = key && value && PyDict_SetItem(dict, key.get(), value.get()) == 0 &&
              PyDict_DelItem(dict, key.get()) == 0;
  if (!done) PyErr_Clear();
  return done && !((PyDictObject*)dict)->ma_values;
#else
  (void)dict;
  return true;
#endif
}

// The id of the one watcher, or -1 when the interpreter has none left (then every check is
// precise).
int watcher_id() {
  static int id = [] {
    int got = PyDict_AddWatcher(on_dict_event);
    if (got < 0) PyErr_Clear();
    return got;
  }();
  return id;
}
#endif

Ref format_change(const char* what, PyObject* name, PyObject* found, PyObject* expected) {
  const Ref name_text = PyUnicode_Check(name) ? Ref::borrow(name) : safe_text(name);
  const Ref found_text = safe_text(found), expected_text = safe_text(expected);
  if (!name_text || !found_text || !expected_text) return Ref();
  PyObject *n = name_text.get(), *f = found_text.get(), *e = expected_text.get();
  if (found == nullptr) return format_text("%s %U is missing (was %U)", what, n, e);
  if (expected == nullptr) return format_text("%s %U is now there: %U", what, n, f);
  if (PyUnicode_Compare(f, e) == 0) return format_text("%s %U is another object (%U)", what, n, f);
  return format_text("%s %U is %U instead of %U", what, n, f, e);
}

// Fills in `failure`; false.  `text` may be none, with an exception or without.
bool fail(Failure* failure, const char* section, Py_ssize_t i, Py_ssize_t j, Ref text) {
  failure->section = section;
  failure->i = i;
  failure->j = j;
  failure->text = std::move(text);
  if (!failure->text) {
    PyErr_Clear();
    failure->text = format_text("changed");
    if (!failure->text) PyErr_Clear();
  }
  return false;
}

bool same_value(PyObject* found, PyObject* expected, bool leaf) {
  if (found == expected) return true;
  return found && expected && leaf && leaf_equal(found, expected);
}

Ref type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref::steal(PyType_GetDict(type));
#else
  return Ref::borrow(type->tp_dict);
#endif
}

// What super(after, self).name finds for an instance of `type`; borrowed from the class that has
// it.
PyObject* super_lookup(PyTypeObject* type, PyTypeObject* after, PyObject* name, Py_hash_t hash) {
  PyObject* mro = type->tp_mro;
  if (!mro) return nullptr;
  Py_ssize_t n = PyTuple_GET_SIZE(mro), i = 0;
  while (i < n && PyTuple_GET_ITEM(mro, i) != (PyObject*)after) i++;
  for (i++; i < n; i++) {
    PyObject* base = PyTuple_GET_ITEM(mro, i);
    if (!PyType_Check(base)) continue;
    const Ref dict = type_dict((PyTypeObject*)base);
    if (PyObject* value = dict ? raw_dict_get(dict.get(), name, hash) : nullptr) return value;
  }
  return nullptr;
}

}  // namespace

// ---------------------------------------------------------------- cheap test

#if MAGPY_DICT_WATCHERS

void Anchors::watch_dicts() {
  int id = watcher_id();
  dirty_.reserve(dicts_.size());
  for (uint32_t k = 0; k < dicts_.size(); k++) {
    DictCheck& check = dicts_[k];
    if (id < 0 || PyDict_Watch(id, check.dict) < 0) {
      PyErr_Clear();
      check.always = true;
    } else {
      watched_dicts()[check.dict].subscribers.push_back({this, k});
    }
    check.dirty = true;
    dirty_.push_back(k);
  }
  watched_ = true;
}

void Anchors::unwatch_dicts() {
  if (!watched_) return;
  watched_ = false;
  auto& dicts = watched_dicts();
  for (const DictCheck& check : dicts_) {
    auto it = dicts.find(check.dict);
    if (it == dicts.end()) continue;
    auto& all = it->second.subscribers;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [this](const Subscriber& s) { return s.anchors == this; }),
              all.end());
    if (all.empty()) {
      dicts.erase(it);
      if (PyDict_Unwatch(watcher_id(), check.dict) < 0) PyErr_Clear();
    }
  }
}

void Anchors::mark_dirty(uint32_t index) {
  if (dicts_[index].dirty) return;
  dicts_[index].dirty = true;
  dirty_.push_back(index);  // never allocates: reserved for all
}

bool Anchors::check_dicts_cheaply() {
  if (dirty_.empty()) return true;
  size_t kept = 0;
  bool holds = true;
  for (size_t k = 0; k < dirty_.size(); k++) {
    uint32_t index = dirty_[k];
    DictCheck& check = dicts_[index];
    // Before the check: making it watchable tells the watcher of a change.
    bool cheap = holds && !check.always && make_watchable(check.dict);
    if (holds) holds = check_dict(check, nullptr);
    if (holds && cheap) {
      check.dirty = false;
      watched_dicts()[check.dict].armed = true;
    } else {
      dirty_[kept++] = index;
    }
  }
  dirty_.resize(kept);
  return holds;
}

#else

void Anchors::watch_dicts() {
  constexpr size_t kBlock = 64;
  // Blocks stay in the order of addresses; what is always checked precisely goes behind them.
  size_t armed = std::stable_partition(dicts_.begin(), dicts_.end(),
                                       [](const DictCheck& check) { return !check.always; }) -
                 dicts_.begin();
  for (const DictCheck& check : dicts_)
    versions_.push_back(&((PyDictObject*)check.dict)->ma_version_tag);
  expected_.assign(dicts_.size(), 0);
  for (size_t begin = 0; begin < armed; begin += kBlock)
    blocks_.push_back({begin, std::min(armed, begin + kBlock), 0});
}

void Anchors::unwatch_dicts() {}

void Anchors::mark_dirty(uint32_t) {}

// The sum is not what it was: checks the dicts whose version is not, and arms the block again.
bool Anchors::check_block(DictBlock& block) {
  uint64_t sum = 0;
  for (size_t k = block.begin; k < block.end; k++) {
    uint64_t version = *versions_[k];  // from 1; an expected 0 never matches
    if (version != expected_[k]) {
      if (!check_dict(dicts_[k], nullptr)) return false;
      expected_[k] = version;
    }
    sum += version;
  }
  block.sum = sum;
  return true;
}

bool Anchors::check_dicts_cheaply() {
  // No addition waits for another dict's version, and the versions are far apart in memory: that is
  // what makes it fast.
  const uint64_t* const* versions = versions_.data();
  size_t done = 0;
  for (DictBlock& block : blocks_) {
    uint64_t sum = 0;
    for (size_t k = block.begin; k < block.end; k++) sum += *versions[k];
    if (sum != block.sum && !check_block(block)) return false;
    done = block.end;
  }
  for (size_t k = done; k < dicts_.size(); k++) {
    if (!check_dict(dicts_[k], nullptr)) return false;
  }
  return true;
}

#endif

bool Anchors::check_types_cheaply() {
  for (TypeCheck& check : types_) {
    unsigned tag = check.type->tp_version_tag;
    if (tag != 0 && tag == check.expected) continue;
    check.expected = 0;
    if (!check_type(check, nullptr)) return false;
    // The lookups above gave the class a version, unless it has none to give.
    if (check.names.empty()) _PyType_Lookup(check.type, check.supers[0].check.key);
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(check.type, Py_TPFLAGS_VALID_VERSION_TAG)) continue;
#endif
    check.expected = check.type->tp_version_tag;
  }
  return true;
}

bool Anchors::check_objects_cheaply() const {
  constexpr size_t kBlock = 32;
  size_t n = objects_.size();
  for (size_t k = 0; k < n;) {
    uintptr_t difference = 0;
    for (size_t end = std::min(n, k + kBlock); k < end; k++) {
      const ObjectCheck& check = objects_[k];
      difference |= ((uintptr_t)Py_TYPE(check.object) ^ (uintptr_t)check.type) |
                    ((uintptr_t)*check.dict_slot ^ (uintptr_t)check.dict);
    }
    if (difference) return false;
  }
  return true;
}

bool Anchors::check() {
  if (state_ && !tensor_api()->state_matches(state_)) return false;
  if (!check_dicts_cheaply() || !check_types_cheaply() || !check_objects_cheaply()) return false;
  for (const ItemsCheck& check : lists_) {
    if (!check_list(check, nullptr)) return false;
  }
  for (const CellCheck& check : cells_) {
    if (!same_value(PyCell_GET(check.cell), check.value, check.leaf)) return false;
  }
  for (const FunctionCheck& check : functions_) {
    if (!check_function(check, nullptr)) return false;
  }
  for (const ItemsCheck& check : sets_) {
    if (!check_set(check, nullptr)) return false;
  }
  if (pack_ && tensor_api()->check_pack(pack_) >= 0) return false;
  for (const AttrCheck& check : attrs_) {
    if (!check_attr(check, nullptr)) return false;
  }
  for (const RedoCheck& check : redos_) {
    if (!check_redo(check, nullptr)) return false;
  }
  return true;
}

bool Anchors::explain(Failure* failure) {
  auto all = [](const auto& checks, auto&& holds) {
    return std::all_of(checks.begin(), checks.end(), holds);
  };
  // Dicts and objects were sorted by address; report the failure that comes first in the caller's
  // order.
  Failure first;
  for (const DictCheck& check : dicts_) {
    Failure here;
    if (check_dict(check, &here)) continue;
    if (!first.section || here.i < first.i) first = std::move(here);
  }
  if (first.section) return *failure = std::move(first), false;
  if (!all(types_, [&](const auto& c) { return check_type(c, failure); })) return false;
  if (!all(objects_, [&](const auto& c) { return check_object(c, failure); })) return false;
  if (!all(lists_, [&](const auto& c) { return check_list(c, failure); })) return false;
  if (!all(cells_, [&](const auto& c) { return check_cell(c, failure); })) return false;
  if (!all(functions_, [&](const auto& c) { return check_function(c, failure); })) return false;
  if (!all(sets_, [&](const auto& c) { return check_set(c, failure); })) return false;
  if (state_ && !tensor_api()->state_matches(state_)) {
    return fail(failure, "state", 0, -1, Ref::steal(tensor_api()->state_difference(state_)));
  }
  if (pack_) {
    Py_ssize_t i = tensor_api()->check_pack(pack_);
    if (i >= 0)
      return fail(failure, "tensors", i, -1,
                  Ref::steal(tensor_api()->difference(metas_[i], tensors_[i])));
  }
  if (!all(attrs_, [&](const auto& c) { return check_attr(c, failure); })) return false;
  return all(redos_, [&](const auto& c) { return check_redo(c, failure); });
}

// ---------------------------------------------------------------- precise checks

bool Anchors::check_dict(const DictCheck& check, Failure* failure) const {
  for (const KeyCheck& item : check.items) {
    PyObject* found = raw_dict_get(check.dict, item.key, item.hash);
    if (same_value(found, item.value, item.leaf)) continue;
    return failure && fail(failure, "dicts", item.i, item.j,
                           format_change("key", item.key, found, item.value));
  }
  if (check.keys && !raw_dict_keys_equal(check.dict, check.keys)) {
    return failure && fail(failure, "dict_keys", check.keys_i, -1,
                           format_text("the keys or their order changed (%zd now, %zd before)",
                                       PyDict_GET_SIZE(check.dict), PyTuple_GET_SIZE(check.keys)));
  }
  return true;
}

bool Anchors::check_type(const TypeCheck& check, Failure* failure) const {
  if (check.type->tp_mro != check.mro) {
    return failure && fail(failure, "types", check.names.empty() ? -1 : check.names[0].i, -1,
                           format_text("the bases of class %s changed", check.type->tp_name));
  }
  for (const KeyCheck& item : check.names) {
    PyObject* found = _PyType_Lookup(check.type, item.key);
    if (same_value(found, item.value, true)) continue;
    return failure && fail(failure, "types", item.i, item.j,
                           format_change("class attribute", item.key, found, item.value));
  }
  for (const TypeCheck::Super& super : check.supers) {
    PyObject* found = super_lookup(check.type, super.after, super.check.key, super.check.hash);
    if (same_value(found, super.check.value, true)) continue;
    return failure &&
           fail(failure, "supers", super.check.i, -1,
                format_change("inherited attribute", super.check.key, found, super.check.value));
  }
  return true;
}

bool Anchors::check_object(const ObjectCheck& check, Failure* failure) const {
  if (Py_TYPE(check.object) != check.type) {
    return failure && fail(failure, "objtypes", check.type_i, -1,
                           format_text("the class is %s instead of %s",
                                       Py_TYPE(check.object)->tp_name, check.type->tp_name));
  }
  if (check.dict && *check.dict_slot != check.dict) {
    return failure &&
           fail(failure, "inst_dicts", check.dict_i, -1, format_text("__dict__ was replaced"));
  }
  return true;
}

bool Anchors::check_list(const ItemsCheck& check, Failure* failure) const {
  Py_ssize_t n = PyTuple_GET_SIZE(check.items);
  if (PyList_GET_SIZE(check.container) != n) {
    return failure && fail(failure, "lists", check.i, -1,
                           format_text("the length is %zd instead of %zd",
                                       PyList_GET_SIZE(check.container), n));
  }
  PyObject** now = ((PyListObject*)check.container)->ob_item;
  PyObject** then = ((PyTupleObject*)check.items)->ob_item;
  for (Py_ssize_t j = 0; j < n; j++) {
    if (same_value(now[j], then[j], true)) continue;
    if (!failure) return false;
    const Ref index = Ref::steal(PyLong_FromSsize_t(j));
    return fail(failure, "lists", check.i, j,
                index ? format_change("item", index.get(), now[j], then[j]) : Ref());
  }
  return true;
}

bool Anchors::check_set(const ItemsCheck& check, Failure* failure) const {
  if (set_gives(check.container, check.items)) return true;
  return failure &&
         fail(failure, "sets", check.i, -1, format_text("the elements of the set changed"));
}

bool Anchors::check_cell(const CellCheck& check, Failure* failure) const {
  PyObject* found = PyCell_GET(check.cell);
  if (same_value(found, check.value, check.leaf)) return true;
  if (!failure) return false;
  const Ref name = format_text("of the closure");
  return fail(failure, "cells", check.i, -1,
              name ? format_change("variable", name.get(), found, check.value) : Ref());
}

bool Anchors::check_function(const FunctionCheck& check, Failure* failure) const {
  const PyFunctionObject* f = check.function;
  auto same = [](PyObject* found, PyObject* expected) {
    return expected == nullptr || (found ? found : Py_None) == expected;
  };
  const char* what = nullptr;
  if (!same(f->func_code, check.code)) {
    what = "code";
  } else if (!same(f->func_defaults, check.defaults)) {
    what = "defaults";
  } else if (!same(f->func_kwdefaults, check.kwdefaults)) {
    what = "keyword defaults";
  }
  if (!what) return true;
  return failure && fail(failure, "funcs", check.i, -1,
                         format_text("the %s of function %U changed", what, f->func_qualname));
}

bool Anchors::check_attr(const AttrCheck& check, Failure* failure) const {
  const Ref found = Ref::steal(PyObject_GetAttr(check.object, check.name));
  if (!found) PyErr_Clear();
  if (same_value(found.get(), check.value, check.leaf)) return true;
  return failure && fail(failure, "attrs", check.i, -1,
                         format_change("attribute", check.name, found.get(), check.value));
}

bool Anchors::check_redo(const RedoCheck& check, Failure* failure) const {
  SignalHold signals;
  const Ref found = Ref::steal(PyObject_Call(check.callable, check.args, nullptr));
  if (!found) PyErr_Clear();
  if (found && same_value(found.get(), check.expected, check.leaf)) return true;
  if (!failure) return false;
  const Ref name = safe_text(check.callable);
  Ref text = name ? format_change("the result of", name.get(), found.get(), check.expected) : Ref();
  return fail(failure, "redo", check.i, -1, std::move(text));
}

// ---------------------------------------------------------------- the rest

int Anchors::traverse(visitproc visit, void* arg) {
  for (PyObject* object : refs_) Py_VISIT(object);
  return 0;
}

void Anchors::release() {
  unwatch_dicts();
  if (pack_) tensor_api()->free_pack(pack_);
  pack_ = nullptr;
  state_ = nullptr;
  dicts_.clear();
  versions_.clear();
  expected_.clear();
  blocks_.clear();
  dirty_.clear();
  types_.clear();
  objects_.clear();
  lists_.clear();
  sets_.clear();
  cells_.clear();
  functions_.clear();
  attrs_.clear();
  redos_.clear();
  tensors_.clear();
  metas_.clear();
  refs_.clear();
}

}  // namespace magpy
