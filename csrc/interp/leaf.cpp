// See leaf.h.
#include "leaf.h"

#include <cstdarg>
#include <cstring>
#include <vector>

#include "classes.h"

namespace magpy {

namespace {

constexpr int kMaxDepth = 64;

std::vector<PyTypeObject*>& value_types() {
  static std::vector<PyTypeObject*> types;
  return types;
}

bool is_value_type(PyTypeObject* type) {
  for (PyTypeObject* known : value_types()) {
    if (known == type) return true;
  }
  return false;
}

// A tuple, a named tuple, torch.Size: nothing but the items.
bool is_plain_tuple(PyTypeObject* type) {
  if (type == &PyTuple_Type) return true;
  if (!PyType_FastSubclass(type, Py_TPFLAGS_TUPLE_SUBCLASS)) return false;
  return type->tp_dictoffset == 0 && type->tp_basicsize == PyTuple_Type.tp_basicsize &&
         type->tp_itemsize == PyTuple_Type.tp_itemsize &&
         !(type->tp_flags & Py_TPFLAGS_MANAGED_DICT);
}

// Tensors made of a NaN have its sign and payload.
bool same_double(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool richcompare_equal(PyObject* a, PyObject* b) {
  int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) PyErr_Clear();
  return result == 1;
}

bool equal(PyObject* a, PyObject* b, int depth);

bool attribute_equal(PyObject* a, PyObject* b, const char* name, int depth) {
  const Ref x = Ref::steal(PyObject_GetAttrString(a, name));
  const Ref y = Ref::steal(x ? PyObject_GetAttrString(b, name) : nullptr);
  if (!y) PyErr_Clear();
  return y && equal(x.get(), y.get(), depth);
}

struct SetItem {
  PyObject* item;
  Py_hash_t hash;
};

// Equal sets may iterate in different orders, as they were filled; what a program computes may
// follow it.
bool set_equal_at(PyObject* a, PyObject* b, int depth) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Py_ssize_t pos_a = 0, pos_b = 0;
  SetItem x, y;
  while (_PySet_NextEntry(a, &pos_a, &x.item, &x.hash)) {
    if (!_PySet_NextEntry(b, &pos_b, &y.item, &y.hash)) return false;
    if (x.hash != y.hash || !equal(x.item, y.item, depth)) return false;
  }
  return true;
}

bool equal(PyObject* a, PyObject* b, int depth) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b) || depth > kMaxDepth) return false;
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type)
    return richcompare_equal(a, b);
  if (type == &PyFloat_Type) return same_double(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) {
    Py_complex x = ((PyComplexObject*)a)->cval, y = ((PyComplexObject*)b)->cval;
    return same_double(x.real, y.real) && same_double(x.imag, y.imag);
  }
  if (is_plain_tuple(type)) {
    Py_ssize_t n = PyTuple_GET_SIZE(a);
    if (n != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
      if (!equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i), depth + 1)) return false;
    }
    return true;
  }
  if (type == &PyFrozenSet_Type) return set_equal_at(a, b, depth + 1);
  if (type == &PySlice_Type) {
    auto *x = (PySliceObject*)a, *y = (PySliceObject*)b;
    return equal(x->start, y->start, depth + 1) && equal(x->stop, y->stop, depth + 1) &&
           equal(x->step, y->step, depth + 1);
  }
  if (type == &PyRange_Type) {
    return attribute_equal(a, b, "start", depth + 1) && attribute_equal(a, b, "stop", depth + 1) &&
           attribute_equal(a, b, "step", depth + 1);
  }
  return is_value_type(type) && richcompare_equal(a, b);
}

bool deep_leaf(PyObject* value, int depth) {
  PyTypeObject* type = Py_TYPE(value);
  if (value == Py_None || value == Py_Ellipsis || value == Py_NotImplemented ||
      type == &PyBool_Type || type == &PyLong_Type || type == &PyUnicode_Type ||
      type == &PyBytes_Type || type == &PyFloat_Type || type == &PyComplex_Type ||
      type == &PyRange_Type || is_value_type(type)) {
    return true;
  }
  if (depth > kMaxDepth) return false;
  if (is_plain_tuple(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
      if (!deep_leaf(PyTuple_GET_ITEM(value, i), depth + 1)) return false;
    }
    return true;
  }
  if (type == &PyFrozenSet_Type) {
    Py_ssize_t pos = 0;
    SetItem x;
    while (_PySet_NextEntry(value, &pos, &x.item, &x.hash)) {
      if (!deep_leaf(x.item, depth + 1)) return false;
    }
    return true;
  }
  if (type == &PySlice_Type) {
    auto* x = (PySliceObject*)value;
    return deep_leaf(x->start, depth + 1) && deep_leaf(x->stop, depth + 1) &&
           deep_leaf(x->step, depth + 1);
  }
  return false;
}

}  // namespace

bool leaf_equal(PyObject* a, PyObject* b) { return equal(a, b, 0); }

bool set_gives(PyObject* set, PyObject* expected) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(expected)) return false;
  Py_ssize_t pos = 0, i = 0;
  SetItem x;
  while (_PySet_NextEntry(set, &pos, &x.item, &x.hash)) {
    if (!equal(x.item, PyTuple_GET_ITEM(expected, i++), 0)) return false;
  }
  return true;
}

Ref set_elements(PyObject* set) {
  Ref elements = Ref::steal(PyTuple_New(PySet_GET_SIZE(set)));
  Py_ssize_t pos = 0, i = 0;
  SetItem x;
  while (elements && _PySet_NextEntry(set, &pos, &x.item, &x.hash))
    PyTuple_SET_ITEM(elements.get(), i++, Py_NewRef(x.item));
  return elements;
}

Ref elements(PyObject* container) {
  if (PyAnySet_Check(container)) return set_elements(container);
  const Ref iterator = Ref::steal(deque_type()->tp_iter(container));
  return Ref::steal(iterator ? PySequence_Tuple(iterator.get()) : nullptr);
}

bool is_deep_leaf(PyObject* value) { return deep_leaf(value, 0); }

int add_leaf_type(PyTypeObject* type) {
  if (is_value_type(type)) return 0;
  Py_INCREF(type);
  value_types().push_back(type);
  return 0;
}

bool is_small_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  constexpr long long end = 1LL << 48;
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0 && value < end && value > -end;
}

const char* type_name(PyObject* value) {
  const char* name = Py_TYPE(value)->tp_name;
  const char* dot = std::strrchr(name, '.');
  return dot ? dot + 1 : name;
}

// New, or nullptr with an exception set.
static PyObject* new_text(PyObject* value) {
  if (!value) {
    return PyUnicode_FromString("nothing");
  } else if (is_deep_leaf(value) && (!PyTuple_Check(value) || PyTuple_CheckExact(value))) {
    Ref repr = Ref::steal(PyObject_Repr(value));
    constexpr Py_ssize_t kLongest = 200;
    if (repr && PyUnicode_GET_LENGTH(repr.get()) > kLongest) {
      const Ref head = Ref::steal(PyUnicode_Substring(repr.get(), 0, kLongest));
      return head ? PyUnicode_FromFormat("%U...", head.get()) : nullptr;
    }
    return repr.release();
  } else if (PyType_Check(value)) {
    return PyUnicode_FromFormat("class %s", ((PyTypeObject*)value)->tp_name);
  } else if (PyFunction_Check(value)) {
    return PyUnicode_FromFormat("function %U", ((PyFunctionObject*)value)->func_qualname);
  } else if (PyCFunction_Check(value)) {
    return PyUnicode_FromFormat("builtin %s", ((PyCFunctionObject*)value)->m_ml->ml_name);
  } else if (PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value) ||
             PyAnySet_Check(value)) {
    Py_ssize_t n = PyDict_Check(value)     ? PyDict_GET_SIZE(value)
                   : PyAnySet_Check(value) ? PySet_GET_SIZE(value)
                                           : Py_SIZE(value);
    return PyUnicode_FromFormat("a %s of %zd", type_name(value), n);
  } else {
    return PyUnicode_FromFormat("a %s object", type_name(value));
  }
}

Ref format_text(const char* format, ...) {
  va_list args;
  va_start(args, format);
  Ref text = Ref::steal(PyUnicode_FromFormatV(format, args));
  va_end(args);
  return text;
}

Ref safe_text(PyObject* value) {
  Ref text = Ref::steal(new_text(value));
  if (!text) {
    PyErr_Clear();
    text = Ref::steal(PyUnicode_FromString("?"));
    if (!text) PyErr_Clear();
  }
  return text;
}

bool runs_code(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (runs_code(PyTuple_GET_ITEM(key, i))) return true;
    }
    return false;
  }
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return type == &PyFrozenSet_Type && !is_deep_leaf(key);
  if (is_tensor(key)) return false;
  static PyObject* const names[] = {PyUnicode_InternFromString("__eq__"),
                                    PyUnicode_InternFromString("__hash__")};
  for (PyObject* name : names) {
    PyObject* own = _PyType_Lookup(type, name);
    if (own != nullptr && PyFunction_Check(own)) return true;
  }
  return false;
}

bool by_identity(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  if (!is_tensor(key))
    return type->tp_hash == PyBaseObject_Type.tp_hash &&
           type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  static PyObject* const names[] = {PyUnicode_InternFromString("__eq__"),
                                    PyUnicode_InternFromString("__hash__")};
  for (PyObject* name : names)
    if (_PyType_Lookup(type, name) != _PyType_Lookup(g_tensor_type, name)) return false;
  return true;
}

PyObject* dict_item(PyObject* dict, PyObject* key) {
  if (!is_tensor(key)) return PyDict_GetItemWithError(dict, key);
  const auto address = reinterpret_cast<uintptr_t>(key);
  return _PyDict_GetItem_KnownHash(dict, key, static_cast<Py_hash_t>(address));
}

Py_hash_t key_hash(PyObject* key) { return runs_code(key) ? 0 : PyObject_Hash(key); }

Ref dict_as_it_is(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Ref dict;
  if (!PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT) && type->tp_dictoffset != 0) {
    PyObject** slot = _PyObject_GetDictPtr(object);
    dict = slot == nullptr || *slot == nullptr ? Ref::steal(PyDict_New()) : Ref::borrow(*slot);
  } else {
    dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  }
  if (!dict) PyErr_Clear();
  return dict;
}

PyObject* raw_dict_get(PyObject* dict, PyObject* key, Py_hash_t hash) {
  if (runs_code(key)) {
    PyObject *k, *found;
    for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &k, &found);) {
      if (k == key) return found;
    }
    return nullptr;
  }
  PyObject* value = _PyDict_GetItem_KnownHash(dict, key, hash);
  if (!value && PyErr_Occurred()) PyErr_Clear();
  return value;
}

bool raw_dict_keys_equal(PyObject* dict, PyObject* keys) {
  Py_ssize_t n = PyTuple_GET_SIZE(keys);
  if (PyDict_GET_SIZE(dict) != n) return false;
  if (PyODict_Check(dict) && n > 1) {
    // An OrderedDict keeps its order outside the dict.  Its own iterator is C code, whatever a
    // subclass overrides.
    const Ref it = Ref::steal(PyODict_Type.tp_iter(dict));
    if (!it) return PyErr_Clear(), false;
    Py_ssize_t i = 0;
    bool same = true;
    while (same) {
      const Ref key = Ref::steal(PyIter_Next(it.get()));
      if (!key) break;
      same = i < n && leaf_equal(key.get(), PyTuple_GET_ITEM(keys, i));
      i++;
    }
    if (PyErr_Occurred()) {
      PyErr_Clear();
      same = false;
    }
    return same && i == n;
  }
  Py_ssize_t pos = 0, i = 0;
  PyObject* key;
  while (PyDict_Next(dict, &pos, &key, nullptr)) {
    if (i >= n || !leaf_equal(key, PyTuple_GET_ITEM(keys, i))) return false;
    i++;
  }
  return i == n;
}

}  // namespace magpy
