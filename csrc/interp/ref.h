// References to Python objects that are dropped when their owner goes, however a function is left.
//
// Owns: `Ref`, `RefList`, `RefMap` and `RefSet`.  Does not own: what becomes of an object whose
// last reference is dropped, which may run any code. Used by both extensions, with the GIL held.
// Each costs what the counting by hand did.
//
// A function that returns PyObject* gives a new reference unless it says "borrowed"; one that
// returns Ref cannot be misread.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace magpy {

// One reference, or none.
class Ref {
 public:
  Ref() = default;
  // Takes over a new reference, of which the caller had charge; nullptr is none.
  static Ref steal(PyObject* object) { return Ref(object); }
  // Makes a reference of its own; the caller's stays the caller's.
  static Ref borrow(PyObject* object) { return Ref(Py_XNewRef(object)); }
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  // What was held is dropped last: that may run code which looks here.
  Ref& operator=(Ref&& other) noexcept {
    PyObject* before = std::exchange(object_, other.release());
    Py_XDECREF(before);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // The reference, which is the caller's from here on.
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  void reset() { *this = Ref(); }
  // For functions that replace what they are given (PyUnicode_InternInPlace).
  PyObject** place() { return &object_; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// A map from objects, each of which is held, to V.
template <class V>
class RefMap {
 public:
  using Map = std::unordered_map<PyObject*, V>;
  RefMap() = default;
  RefMap(RefMap&& other) noexcept : map_(std::exchange(other.map_, {})) {}
  RefMap& operator=(RefMap&& other) noexcept {
    RefMap before(std::move(*this));
    map_.swap(other.map_);
    return *this;
  }
  RefMap(const RefMap&) = delete;
  RefMap& operator=(const RefMap&) = delete;
  ~RefMap() { clear(); }

  // Whether it is new here.
  template <class... Args>
  bool add(PyObject* key, Args&&... args) {
    const bool fresh = map_.try_emplace(key, std::forward<Args>(args)...).second;
    if (fresh) Py_INCREF(key);
    return fresh;
  }
  auto find(PyObject* key) { return map_.find(key); }
  bool has(PyObject* key) const { return map_.find(key) != map_.end(); }
  bool empty() const { return map_.empty(); }
  auto begin() { return map_.begin(); }
  auto end() { return map_.end(); }
  // Dropping a reference may run code that looks here: it finds nothing.
  void clear() {
    Map before;
    before.swap(map_);
    for (auto& [key, value] : before) Py_DECREF(key);
  }

 private:
  Map map_;
};

// Objects that something else refers to without holding them, held here.
class RefList {
 public:
  RefList() = default;
  RefList(const RefList&) = delete;
  RefList& operator=(const RefList&) = delete;
  ~RefList() { clear(); }

  void add(PyObject* object) {
    objects_.push_back(object);
    Py_INCREF(object);
  }
  size_t size() const { return objects_.size(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }
  // Dropping a reference may run code that looks here: it finds nothing.
  void clear() {
    std::vector<PyObject*> before;
    before.swap(objects_);
    for (PyObject* object : before) Py_DECREF(object);
  }

 private:
  std::vector<PyObject*> objects_;
};

// A set of objects, each of which is held.
class RefSet {
 public:
  RefSet() = default;
  RefSet(RefSet&& other) noexcept : set_(std::exchange(other.set_, {})) {}
  RefSet& operator=(RefSet&& other) noexcept {
    RefSet before(std::move(*this));
    set_.swap(other.set_);
    return *this;
  }
  RefSet(const RefSet&) = delete;
  RefSet& operator=(const RefSet&) = delete;
  ~RefSet() { clear(); }

  // Whether it is new here.
  bool add(PyObject* object) {
    const bool fresh = set_.insert(object).second;
    if (fresh) Py_INCREF(object);
    return fresh;
  }
  bool has(PyObject* object) const { return set_.find(object) != set_.end(); }
  bool empty() const { return set_.empty(); }
  void reserve(size_t n) { set_.reserve(n); }
  auto begin() const { return set_.begin(); }
  auto end() const { return set_.end(); }
  void clear() {
    std::unordered_set<PyObject*> before;
    before.swap(set_);
    for (PyObject* object : before) Py_DECREF(object);
  }

 private:
  std::unordered_set<PyObject*> set_;
};

}  // namespace magpy
