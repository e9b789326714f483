// What a guard is given of its anchored objects, read into checks; see anchors.h.
#include "anchors.h"
#include "leaf.h"

#include <algorithm>
#include <cstring>

#include "tensor_access.h"

namespace magpy {

namespace {

// Parses a mode argument: "is" or "leaf".
int parse_mode(PyObject* mode, bool* leaf) {
  if (PyUnicode_Check(mode)) {
    if (PyUnicode_CompareWithASCIIString(mode, "is") == 0) return *leaf = false, 0;
    if (PyUnicode_CompareWithASCIIString(mode, "leaf") == 0) return *leaf = true, 0;
  }
  PyErr_Format(PyExc_ValueError, "mode must be 'is' or 'leaf', not %R", mode);
  return -1;
}

PyObject* or_null(PyObject* value) { return value == absent ? nullptr : value; }

}  // namespace

Anchors::DictCheck& Anchors::dict_check(PyObject* dict) {
  for (size_t k = dicts_.size();
       k-- > 0 && dicts_.size() - k < 8;) {  // records of one dict mostly come together
    if (dicts_[k].dict == dict) return dicts_[k];
  }
  keep(dict);
  dicts_.emplace_back();
  dicts_.back().dict = dict;
  return dicts_.back();
}

Anchors::TypeCheck& Anchors::type_check(PyTypeObject* type) {
  for (TypeCheck& check : types_) {
    if (check.type == type) return check;
  }
  keep((PyObject*)type);
  types_.emplace_back();
  types_.back().type = type;
  types_.back().mro = type->tp_mro;
  keep(type->tp_mro);
  return types_.back();
}

int Anchors::add_dict_record(PyObject* record, Py_ssize_t i) {
  PyObject *dict, *items;
  if (!PyArg_ParseTuple(record, "O!O:dicts", &PyDict_Type, &dict, &items)) return -1;
  const Ref fast =
      Ref::steal(PySequence_Fast(items, "the keys of a dict anchor must be a sequence"));
  if (!fast) return -1;
  DictCheck& check = dict_check(dict);
  for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(fast.get()); j++) {
    PyObject *key, *value, *mode;
    bool leaf = false;
    PyObject* item = PySequence_Fast_GET_ITEM(fast.get(), j);
    if (!PyArg_ParseTuple(item, "OOO:dicts", &key, &value, &mode) || parse_mode(mode, &leaf) < 0)
      return -1;
    Py_hash_t hash = key_hash(key);
    if (hash == -1) return -1;
    keep(key);
    keep(value);
    check.items.push_back({key, or_null(value), hash, leaf, i, j});
  }
  return 0;
}

int Anchors::add_type_record(PyObject* record, Py_ssize_t i) {
  PyObject *type, *names;
  if (!PyArg_ParseTuple(record, "O!O:types", &PyType_Type, &type, &names)) return -1;
  const Ref fast =
      Ref::steal(PySequence_Fast(names, "the names of a class anchor must be a sequence"));
  if (!fast) return -1;
  TypeCheck& check = type_check((PyTypeObject*)type);
  for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(fast.get()); j++) {
    PyObject *name, *value;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast.get(), j), "UO:types", &name, &value))
      return -1;
    keep(name);
    keep(value);
    check.names.push_back({name, or_null(value), PyObject_Hash(name), true, i, j});
  }
  return 0;
}

int Anchors::add_super_record(PyObject* record, Py_ssize_t i) {
  PyObject *type, *after, *name, *value;
  if (!PyArg_ParseTuple(record, "O!O!UO:supers", &PyType_Type, &type, &PyType_Type, &after, &name,
                        &value))
    return -1;
  TypeCheck& check = type_check((PyTypeObject*)type);
  keep(after);
  keep(name);
  keep(value);
  check.supers.push_back(
      {(PyTypeObject*)after, {name, or_null(value), PyObject_Hash(name), true, i, -1}});
  return 0;
}

int Anchors::add_object(PyObject* object, PyTypeObject* type, PyObject* dict, Py_ssize_t i) {
  PyObject** slot = nullptr;
  if (dict) {
    slot = _PyObject_GetDictPtr(object);
    if (!slot || *slot != dict) {
      PyErr_SetString(PyExc_ValueError, "inst_dicts: the dict is not the __dict__ of the object");
      return -1;
    }
    keep(dict);
  }
  keep(object);
  if (type) keep((PyObject*)type);
  objects_.push_back({object, type, slot, dict, type ? i : -1, dict ? i : -1});
  return 0;
}

int Anchors::add_tensor_record(PyObject* record, Py_ssize_t) {
  PyObject *tensor, *meta;
  const TensorApi* api = tensor_api();
  if (!api || !PyArg_ParseTuple(record, "OO!:tensors", &tensor, api->meta_type, &meta)) return -1;
  keep(tensor);
  keep(meta);
  tensors_.push_back(tensor);
  metas_.push_back(meta);
  return 0;
}

int Anchors::add_state(PyObject* state) {
  if (state == Py_None) return 0;
  const TensorApi* api = tensor_api();
  if (!api) return -1;
  if (!PyObject_TypeCheck(state, api->state_type)) {
    PyErr_SetString(PyExc_TypeError, "state must be a TorchState or None");
    return -1;
  }
  keep(state);
  state_ = state;
  return 0;
}

int Anchors::add_one(const char* name, PyObject* record, Py_ssize_t i) {
  auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  PyObject *a, *b, *c, *d;
  bool leaf = false;
  if (is("dicts")) return add_dict_record(record, i);
  if (is("types")) return add_type_record(record, i);
  if (is("supers")) return add_super_record(record, i);
  if (is("tensors")) return add_tensor_record(record, i);
  if (is("dict_keys")) {
    if (!PyArg_ParseTuple(record, "O!O!:dict_keys", &PyDict_Type, &a, &PyTuple_Type, &b)) return -1;
    DictCheck& check = dict_check(a);
    keep(b);
    check.keys = b;
    check.keys_i = i;
    // move_to_end() reorders an OrderedDict without the dict below knowing.
    check.always = PyODict_Check(a) && PyTuple_GET_SIZE(b) > 1;
    return 0;
  }
  if (is("lists")) {
    if (!PyArg_ParseTuple(record, "O!O!", &PyList_Type, &a, &PyTuple_Type, &b)) return -1;
    keep(a);
    keep(b);
    lists_.push_back({a, b, i});
    return 0;
  }
  if (is("sets")) {
    if (!PyArg_ParseTuple(record, "OO!:sets", &a, &PyTuple_Type, &b)) return -1;
    if (!PyAnySet_Check(a)) return PyErr_SetString(PyExc_TypeError, "sets: a set is needed"), -1;
    keep(a);
    keep(b);
    sets_.push_back({a, b, i});
    return 0;
  }
  if (is("cells")) {
    if (!PyArg_ParseTuple(record, "O!OO:cells", &PyCell_Type, &a, &b, &c) ||
        parse_mode(c, &leaf) < 0)
      return -1;
    keep(a);
    keep(b);
    cells_.push_back({a, or_null(b), leaf, i});
    return 0;
  }
  if (is("funcs")) {
    if (!PyArg_ParseTuple(record, "O!OOO:funcs", &PyFunction_Type, &a, &b, &c, &d)) return -1;
    for (PyObject* object : {a, b, c, d}) keep(object);
    functions_.push_back({(PyFunctionObject*)a, or_null(b), or_null(c), or_null(d), i});
    return 0;
  }
  if (is("objtypes")) {
    if (!PyArg_ParseTuple(record, "OO!:objtypes", &a, &PyType_Type, &b)) return -1;
    return add_object(a, (PyTypeObject*)b, nullptr, i);
  }
  if (is("inst_dicts")) {
    if (!PyArg_ParseTuple(record, "OO!:inst_dicts", &a, &PyDict_Type, &b)) return -1;
    return add_object(a, nullptr, b, i);
  }
  if (is("attrs")) {
    if (!PyArg_ParseTuple(record, "OUOO:attrs", &a, &b, &c, &d) || parse_mode(d, &leaf) < 0)
      return -1;
    for (PyObject* object : {a, b, c}) keep(object);
    attrs_.push_back({a, b, or_null(c), leaf, i});
    return 0;
  }
  if (is("redo")) {
    if (!PyArg_ParseTuple(record, "OO!OO:redo", &a, &PyTuple_Type, &b, &c, &d) ||
        parse_mode(d, &leaf) < 0)
      return -1;
    for (PyObject* object : {a, b, c}) keep(object);
    redos_.push_back({a, b, c, leaf, i});
    return 0;
  }
  PyErr_Format(PyExc_ValueError, "unknown anchor section %s", name);
  return -1;
}

int Anchors::add_section(const char* name, PyObject* list) {
  const Ref fast = Ref::steal(PySequence_Fast(list, "an anchor section must be a list"));
  if (!fast) return -1;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); i++) {
    PyObject* record = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (!PyTuple_Check(record))
      return PyErr_Format(PyExc_TypeError, "%s: a record must be a tuple, not %.100s", name,
                          Py_TYPE(record)->tp_name),
             -1;
    if (add_one(name, record, i) < 0) return -1;
  }
  return 0;
}

int Anchors::build(PyObject* anchors) {
  PyObject *name, *list;
  Py_ssize_t pos = 0;
  while (PyDict_Next(anchors, &pos, &name, &list)) {
    const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
    if (!text) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "anchor sections are named by str");
      return -1;
    }
    if ((std::strcmp(text, "state") == 0 ? add_state(list) : add_section(text, list)) < 0)
      return -1;
  }
  return finish();
}

int Anchors::finish() {
  if (!tensors_.empty()) {
    pack_ = tensor_api()->pack(tensors_.data(), metas_.data(), (Py_ssize_t)tensors_.size());
    if (!pack_) return PyErr_SetString(PyExc_ValueError, "tensors: not a tensor"), -1;
  }
  // By address, so that neighbours share cache lines and pages; the records know their place in the
  // argument.
  std::sort(dicts_.begin(), dicts_.end(),
            [](const DictCheck& a, const DictCheck& b) { return a.dict < b.dict; });
  std::sort(objects_.begin(), objects_.end(),
            [](const ObjectCheck& a, const ObjectCheck& b) { return a.object < b.object; });
  size_t out = 0;
  for (const ObjectCheck& check : objects_) {
    ObjectCheck* last = out ? &objects_[out - 1] : nullptr;
    auto agree = [](const void* a, const void* b) { return !a || !b || a == b; };
    if (last && last->object == check.object && agree(last->type, check.type) &&
        agree(last->dict, check.dict)) {
      // The place in the caller's order is that of the first record.
      if (check.type && (!last->type || check.type_i < last->type_i))
        last->type = check.type, last->type_i = check.type_i;
      if (check.dict && (!last->dict || check.dict_i < last->dict_i)) {
        last->dict = check.dict, last->dict_slot = check.dict_slot, last->dict_i = check.dict_i;
      }
    } else {
      objects_[out++] = check;
    }
  }
  objects_.resize(out, ObjectCheck{});
  for (auto& check : objects_) {
    // A comparison without a branch for what is not compared: read some word that is its own
    // expectation.
    if (!check.type) check.type = Py_TYPE(check.object);
    if (!check.dict) check.dict_slot = &check.dict;
  }
  watch_dicts();
  return 0;
}

}  // namespace magpy
