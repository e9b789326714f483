// The anchored half of a guard: long-lived objects that must be what they were, and the cheap test
// that they are.
//
// Owns: the anchored objects (strong references, visited by the guard's GC functions), the precise
// checks of what was read of them, the stamps that let a call skip those checks.  Does not own:
// relative checks (guards), what makes a tensor unchanged (tensor_api.h). Called only by guards,
// with the GIL held.
//
// NOTE: [Cheap test]
// Dicts.  CPython 3.11 gives every dict a version out of one counter that only grows, so that a
// change of a dict makes its version larger: the sum of the versions of some dicts is what it was
// only if each of them is.  A block of dicts is one addition each and one comparison.  On 3.12+ a
// dict watcher puts the dict on its guards' dirty lists, and a guard looks only at whether its list
// is empty.  Watchers are told before the change and no Python code runs in between. Objects.
// Nothing tells of `object.__class__ = other` or of another __dict__: two words of each object are
// compared, blocks of objects at a time. Classes.  tp_version_tag on every version: it is set to 0
// when the class or a base changes and a new one is never reused; when CPython stops handing out
// tags (they can run out) the tag stays 0, which never counts as unchanged. After a cheap test
// fails, only the objects that failed it are checked precisely, and are re-armed if they still
// hold.  What else there is (lists, sets, cells, attributes) is checked precisely in every call.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <vector>

#include "ref.h"

namespace magpy {

// Why a check failed, filled in only when a message is wanted.
struct Failure {
  const char* section = nullptr;
  Py_ssize_t i = -1, j = -1;
  Ref text;
};

// Sentinel: the key, attribute or cell content must be missing.  Immortal for the life of the
// process.
extern PyObject* absent;

class Anchors {
 public:
  Anchors() = default;
  ~Anchors() { release(); }
  Anchors(const Anchors&) = delete;
  Anchors& operator=(const Anchors&) = delete;

  // Reads the `anchors` argument of Guard.  0, or -1 with an exception set.
  int build(PyObject* anchors);
  // The cheap test, then precise checks of whatever failed it.
  bool check();
  // Every check precisely, in the order of `build`; false with `failure` filled in.
  bool explain(Failure* failure);

  int traverse(visitproc visit, void* arg);
  void release();

  // For the dict watcher: record `index` has changed.
  void mark_dirty(uint32_t index);

 private:
  struct KeyCheck {
    PyObject* key;
    PyObject* value;  // nullptr: absent
    Py_hash_t hash;
    bool leaf;
    Py_ssize_t i, j;  // place in `build`'s argument
  };
  struct DictCheck {
    PyObject* dict;
    PyObject* keys = nullptr;  // exactly these, or nullptr
    Py_ssize_t keys_i = -1;
    std::vector<KeyCheck> items;
    bool always = false;  // no cheap test can vouch for it
    bool dirty = true;
  };
  struct TypeCheck {
    PyTypeObject* type;
    PyObject* mro;          // compared too: what isinstance() and `super` say follows from it
    unsigned expected = 0;  // 0: not armed
    std::vector<KeyCheck> names;
    struct Super {
      PyTypeObject* after;
      KeyCheck check;
    };
    std::vector<Super> supers;
  };
  // 3.11: the dicts [begin, end), whose versions had this sum when each was checked precisely; 0:
  // not armed.
  struct DictBlock {
    size_t begin, end;
    uint64_t sum;
  };
  struct ObjectCheck {
    PyObject* object;
    PyTypeObject* type;  // nullptr: not compared
    PyObject** dict_slot;
    PyObject* dict;  // nullptr: not compared
    Py_ssize_t type_i, dict_i;
  };
  struct ItemsCheck {
    PyObject* container;
    PyObject* items;  // tuple; of a set in the order in which it gives them
    Py_ssize_t i;
  };
  struct CellCheck {
    PyObject* cell;
    PyObject* value;
    bool leaf;
    Py_ssize_t i;
  };
  struct FunctionCheck {
    PyFunctionObject* function;
    PyObject *code, *defaults, *kwdefaults;
    Py_ssize_t i;
  };
  struct AttrCheck {
    PyObject *object, *name, *value;
    bool leaf;
    Py_ssize_t i;
  };
  struct RedoCheck {
    PyObject *callable, *args, *expected;
    bool leaf;
    Py_ssize_t i;
  };

  int add_section(const char* name, PyObject* list);
  int add_one(const char* name, PyObject* record, Py_ssize_t i);
  int add_dict_record(PyObject* record, Py_ssize_t i);
  int add_type_record(PyObject* record, Py_ssize_t i);
  int add_super_record(PyObject* record, Py_ssize_t i);
  int add_tensor_record(PyObject* record, Py_ssize_t i);
  int add_object(PyObject* object, PyTypeObject* type, PyObject* dict, Py_ssize_t i);
  int add_state(PyObject* state);
  int finish();

  DictCheck& dict_check(PyObject* dict);
  TypeCheck& type_check(PyTypeObject* type);
  void keep(PyObject* object) { refs_.add(object); }

  // Precise checks; a null failure means that no text is wanted.
  bool check_dict(const DictCheck& check, Failure* failure) const;
  bool check_type(const TypeCheck& check, Failure* failure) const;
  bool check_object(const ObjectCheck& check, Failure* failure) const;
  bool check_list(const ItemsCheck& check, Failure* failure) const;
  bool check_set(const ItemsCheck& check, Failure* failure) const;
  bool check_cell(const CellCheck& check, Failure* failure) const;
  bool check_function(const FunctionCheck& check, Failure* failure) const;
  bool check_attr(const AttrCheck& check, Failure* failure) const;
  bool check_redo(const RedoCheck& check, Failure* failure) const;

  bool check_dicts_cheaply();
  bool check_block(DictBlock& block);
  bool check_types_cheaply();
  bool check_objects_cheaply() const;
  void watch_dicts();
  void unwatch_dicts();

  RefList refs_;  // every strong reference
  std::vector<DictCheck> dicts_;
  // 3.11, the first two parallel to dicts_; what no version can vouch for stands last, outside the
  // blocks.
  std::vector<const uint64_t*> versions_;
  std::vector<uint64_t> expected_;
  std::vector<DictBlock> blocks_;
  std::vector<uint32_t> dirty_;  // 3.12+: indices into dicts_
  bool watched_ = false;
  std::vector<TypeCheck> types_;
  std::vector<ObjectCheck> objects_;
  std::vector<ItemsCheck> lists_, sets_;
  std::vector<CellCheck> cells_;
  std::vector<FunctionCheck> functions_;
  std::vector<AttrCheck> attrs_;
  std::vector<RedoCheck> redos_;
  std::vector<PyObject*> tensors_, metas_;
  void* pack_ = nullptr;
  PyObject* state_ = nullptr;
};

}  // namespace magpy
