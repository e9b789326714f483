#include "tables.h"

#include <vector>

#include "looks.h"
#include "session_impl.h"

namespace magpy {

namespace {

// Keys of which nobody's code tells whether they are equal.
bool is_key(PyObject* v) { return PyUnicode_CheckExact(v) || PyLong_CheckExact(v); }

// Whether code of the program's may run where a key is looked for.
bool runs_no_code(Session* s, PyObject* table, PyObject* key) {
  if (PyDict_CheckExact(table)) return look_for_key(s, table, key);
  static PyObject* const asked = PyUnicode_InternFromString("code of its keys");
  static PyObject* const runs = PyUnicode_InternFromString("its keys run code");
  if (first_time(s, kSnap, table, asked)) {
    PyObject* k;
    Py_hash_t hash;
    Py_ssize_t pos = 0;
    while (_PySet_NextEntry(table, &pos, &k, &hash))
      if (!is_leaf(k)) {
        first_time(s, kSnap, table, runs);
        break;
      }
  }
  return !seen(s, kSnap, table, runs);
}

// A dict that the run has changed at other keys becomes a table, if that is all it did: what stands
// at those is put there before what comes now.
bool becomes_table(Session* s, PyObject* dict) {
  std::vector<Ref> keys;
  for (const Store& store : s->stores)
    if (store.holder == dict) {
      if (!store.key || store.address == nullptr) return false;
      keys.push_back(Ref::borrow(store.key.get()));
    }
  s->containers[dict].table = s->containers[dict].unlogged = s->tables = true;
  for (const Ref& key : keys) {
    const Ref value = Ref::borrow(item_or_null(dict, key.get()));
    if (!value) {
      leave_table(s, dict);
      return false;
    }
    ask(s, "table_store", dict, key.get(), value.get());
  }
  return true;
}

// Whether the code that runs is torch's for the hooks of modules.
bool is_of_hooks() {
  static PyObject* const names[] = {PyUnicode_InternFromString("torch.nn.modules.module"),
                                    PyUnicode_InternFromString("torch.utils.hooks")};
  static PyObject* const str_name = PyUnicode_InternFromString("__name__");
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals != nullptr ? item_or_null(globals, str_name) : nullptr;
  return name != nullptr && PyUnicode_Check(name) &&
         (PyUnicode_Compare(name, names[0]) == 0 || PyUnicode_Compare(name, names[1]) == 0);
}

void fix_new_keys(Session* s, PyObject* obj) {
  const auto it = s->new_keys.find(obj);
  if (it == s->new_keys.end()) return;
  const std::vector<Ref> keys = std::move(it->second);
  s->new_keys.erase(it);
  for (const Ref& key : keys) rely_on(s, key.get());
}

}  // namespace

bool is_table(Session* s, PyObject* obj) {
  if (!s->tables) return false;
  const auto it = s->containers.find(obj);
  return it != s->containers.end() && it->second.table;
}

bool asks_length(Session* s, PyObject* obj) {
  if (s->tracked.empty() || (!PyDict_CheckExact(obj) && !PySet_CheckExact(obj))) return false;
  const auto it = s->containers.find(obj);
  if (it == s->containers.end()) return false;
  const Container& c = it->second;
  return c.table || (c.asked && !c.pre && !c.whole);
}

bool asks_table(Session* s, PyObject* obj, PyObject* key) {
  if (s->tracked.empty() || (!PyDict_CheckExact(obj) && !PySet_CheckExact(obj))) return false;
  if (!is_key(key) || !known_outside(s, obj)) return false;
  const auto it = s->containers.find(obj);
  const bool known = it != s->containers.end(), table = known && it->second.table;
  if (!table && !tracked(s, key)) return false;
  const bool changed = known && !table && it->second.pre;
  if (known && !table && (it->second.whole || (changed && it->second.unlogged))) return false;
  ErrorGuard error;
  if (!runs_no_code(s, obj, key)) return false;
  if (changed && !(PyDict_Check(obj) && becomes_table(s, obj))) return false;
  return s->containers[obj].asked = true;
}

bool puts_at_new_key(Session* s, PyObject* obj, PyObject* key) {
  if (s->tracked.empty() || !Py_IS_TYPE(obj, &PyODict_Type) || !is_of_hooks()) return false;
  if (!is_key(key) || !tracked(s, key) || !known_outside(s, obj)) return false;
  if (s->shown.count(obj) != 0) return false;
  ErrorGuard error;
  if (!look_for_key(s, obj, key) || item_or_null(obj, key) != nullptr) return false;
  if (ask(s, "table_new", obj, key).get() != Py_True) return false;
  s->new_keys[obj].push_back(Ref::borrow(key));
  return true;
}

void shown(Session* s, PyObject* obj) {
  if (obj == nullptr || !PyODict_Check(obj) || is_of_hooks()) return;
  s->shown.insert(obj);
  fix_new_keys(s, obj);
}

bool is_new_key(Session* s, PyObject* obj, PyObject* key) {
  const auto it = s->new_keys.find(obj);
  if (it == s->new_keys.end()) return false;
  for (const Ref& known : it->second)
    if (known.get() == key) return true;
  return false;
}

bool gives_plain(PyObject* value) {
  return value != nullptr && (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
                              PyFloat_CheckExact(value) || PyUnicode_CheckExact(value));
}

void store_in_table(Session* s, PyObject* table, PyObject* key, PyObject* value) {
  if (!is_table(s, table)) {
    if (!ensure_pre(s, table)) return;
    s->containers[table].table = s->tables = true;
  }
  s->containers[table].unlogged = true;
  ask(s, "table_store", table, key, value);
}

void leave_table(Session* s, PyObject* obj) {
  if (!s->new_keys.empty() && !is_of_hooks()) fix_new_keys(s, obj);
  if (!is_table(s, obj)) return;
  s->containers[obj].table = false;
  ask(s, "table_left", obj);
}

}  // namespace magpy
