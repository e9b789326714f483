// Items: what obj[key], obj[key] = value, del obj[key] and `in` look at and change.
//
// Owns: the on_* functions of session.h for these.  Does not own: the other instructions
// (session_events.cpp), calls of methods that do the same (session_calls.cpp), nor the operations
// on outside objects (session_state.cpp).  Called by the probes with the GIL held.

#include "classes.h"
#include "looks.h"
#include "session_impl.h"
#include "tables.h"

namespace magpy {

bool computes(PyObject* o) {
  if (is_leaf(o) || is_tensor(o) || PyList_Check(o) || PyTuple_Check(o) || is_deque(o))
    return false;
  return PyDict_Check(o) || c_base(Py_TYPE(o)) == Py_TYPE(o);
}

// An item is read or stored: a list and a deque look at none for that.
static void touch_items(Session* s, PyObject* obj) {
  if (PyList_Check(obj) || is_deque(obj))
    touch_kept(s, obj, false);
  else
    touch(s, obj, false);
}

// list[i]: whether no more than that element is looked at.
static bool read_item(Session* s, PyObject* list, PyObject* key) {
  if (!PyList_CheckExact(list) || !PyLong_CheckExact(key)) return false;
  // What is only read by its places is not copied.
  const auto known = s->containers.find(list);
  PyObject* pre = known != s->containers.end() ? known->second.pre.get() : nullptr;
  if (pre != nullptr && known->second.whole) return false;
  int overflow = 0;
  const Py_ssize_t index = PyLong_AsLongAndOverflow(key, &overflow);
  // All that was done to it, as nobody looked into it, was to append.
  const Py_ssize_t now = PyList_GET_SIZE(list),
                   before = pre != nullptr ? PyTuple_GET_SIZE(pre) : now,
                   place = index < 0 ? now + index : index;
  if (overflow != 0 || place < 0 || place >= now) return false;
  if (s->numbered.count(list) != 0) {
    // Which element a place is, counted from the other end, follows from the length.
    if (index < 0 && !read_length(s, list)) return false;
    // That such a number is there is guarded where it becomes an input.
    if (tracked(s, PyList_GET_ITEM(list, place))) return true;
  }
  // What was appended is found from the end, whatever was there before.
  if (place >= before) return index < 0;
  PyObject* value = pre != nullptr ? PyTuple_GET_ITEM(pre, place) : PyList_GET_ITEM(list, place);
  if (value != PyList_GET_ITEM(list, place)) {
    const Ref at = Ref::steal(PyLong_FromSsize_t(place));
    if (!at) {
      fail(s, "list item");
      return true;
    }
    // The program put it there itself: nothing from outside was read.
    if (stored_by_run(s, list, at.get(), PyList_GET_ITEM(list, place))) return true;
    if (others_ran(s)) {
      refuse_race(s, list);
      return true;
    }
  }
  const Py_ssize_t same = index < 0 ? place - before : place;
  if (!first_time(s, kListItem, list, reinterpret_cast<PyObject*>(same))) return true;
  const Ref number = Ref::steal(PyLong_FromSsize_t(same));
  if (!number) {
    fail(s, "list item");
    return true;
  }
  emit(s, kListItem, list, number.get(), value);
  reach(s, value);
  return true;
}

// The value at a key in a list or dict, or null: where that is not told without code of the
// program's, or the guard compares plain values anyway.
static PyObject* object_at(Session* s, PyObject* obj, PyObject* key) {
  PyObject* value = nullptr;
  if (PyList_CheckExact(obj) && PyLong_CheckExact(key)) {
    int overflow = 0;
    const Py_ssize_t index = PyLong_AsLongAndOverflow(key, &overflow), size = PyList_GET_SIZE(obj);
    if (overflow != 0 || index < -size || index >= size) return nullptr;
    value = PyList_GET_ITEM(obj, index < 0 ? index + size : index);
  } else if (PyDict_CheckExact(obj) && (PyUnicode_CheckExact(key) || PyLong_CheckExact(key)) &&
             look_for_key(s, obj, key)) {
    value = item_or_null(obj, key);
  }
  return value == nullptr || is_leaf(value) || tracked(s, value) ? nullptr : value;
}

// obj[key] with a number or text from outside that is an input: whether the guard can read the
// value there again.  What the run has changed of `obj` by then has others at other keys.
static bool reads_value_at(Session* s, PyObject* obj, PyObject* key) {
  if (!PyList_CheckExact(obj) && !PyDict_CheckExact(obj)) return false;
  if (!tracked(s, key) || !known_outside(s, obj) || s->numbered.count(obj) != 0) return false;
  const auto known = s->containers.find(obj);
  if (known != s->containers.end() &&
      (known->second.pre || known->second.whole || known->second.table || known->second.unlogged))
    return false;
  ErrorGuard error;
  PyObject* value = object_at(s, obj, key);
  if (value == nullptr || ask(s, "is_outside_value", key).get() != Py_True) return false;
  if (!first_time(s, kValueAt, obj, key)) return true;
  emit(s, kValueAt, obj, key, value);
  reach(s, value);
  return true;
}

// list[a:b:c]: whether no more than these elements and the length are looked at.
static bool read_slice(Session* s, PyObject* list, PyObject* key) {
  if (!PyList_CheckExact(list) || !PySlice_Check(key)) return false;
  auto* slice = reinterpret_cast<PySliceObject*>(key);
  for (PyObject* v : {slice->start, slice->stop, slice->step})
    if (v != Py_None && !PyLong_CheckExact(v)) return false;
  const auto known = s->containers.find(list);
  if (known != s->containers.end() && known->second.whole) return false;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
    PyErr_Clear();  // the program gets the same error
    return false;
  }
  const Py_ssize_t size = PyList_GET_SIZE(list);
  const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
  // All of a list is compared at once.
  if (2 * count > size || !read_length(s, list)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref place = Ref::steal(PyLong_FromSsize_t(start + i * step));
    if (!place) {
      fail(s, "list slice");
      return true;
    }
    if (!read_item(s, list, place.get())) return false;
  }
  return true;
}

// obj[key] = value copies the value, as arrays and buffers do; containers keep it, and a class's
// own method is watched.
static bool copies(PyObject* obj) {
  if (PyDict_Check(obj) || PyList_Check(obj) || is_deque(obj) || is_tensor(obj)) return false;
  return c_base(Py_TYPE(obj)) != &PyBaseObject_Type;
}

// Whether a key that differs from call to call chooses one of some plain values of one type, which
// are the same in other calls (`names[int(x.argmax())]`): it is chosen again.
static bool chooses(Session* s, PyObject* obj, PyObject* key) {
  constexpr Py_ssize_t kMost = 256;
  if (s->tracked.empty() || !tracked(s, key)) return false;
  PyTypeObject* type = nullptr;
  auto fits = [s, &type](PyObject* v) {
    PyTypeObject* t = Py_TYPE(v);
    if (type == nullptr) type = t;
    const bool plain = t == &PyUnicode_Type || t == &PyLong_Type || t == &PyFloat_Type;
    return plain && t == type && !tracked(s, v);
  };
  if (PyTuple_CheckExact(obj) || PyList_CheckExact(obj)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    if (!PyLong_CheckExact(key) || n > kMost) return false;
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!fits(PySequence_Fast_GET_ITEM(obj, i))) return false;
    return true;
  }
  if (!PyDict_CheckExact(obj) || PyDict_GET_SIZE(obj) > kMost || !plain_key(key)) return false;
  PyObject *k, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(obj, &pos, &k, &value))
    if (!is_leaf(k) || tracked(s, k) || !fits(value)) return false;
  return true;
}

// Whether obj[key] of a table is done again, or that nothing is there asked.
static bool loads_from_table(Session* s, PyObject* obj, PyObject* key) {
  if (!PyDict_Check(obj) || !asks_table(s, obj, key)) return false;
  ErrorGuard error;
  PyObject* now = item_or_null(obj, key);
  return now == nullptr || gives_plain(now);
}

// Whether what a defaultdict's factory makes for a key can be told, and is logged like a store.
static bool logs_what_is_made(Session* s, PyObject* dict, PyObject* key) {
  return Py_IS_TYPE(dict, g_defaultdict_type) && !compares_by_code(s, dict) &&
         (plain_key(key) || by_identity(key));
}

// What is read of obj and key before obj[key] is.
static void item_load_pre(Session* s, PyObject* obj, PyObject* key) {
  if (loads_from_table(s, obj, key)) return;
  const bool choice = chooses(s, obj, key);
  if (!choice && !s->tracked.empty() && reads_value_at(s, obj, key)) return;
  if (!choice && !s->tracked.empty() && !is_tensor(obj) && !tracked(s, obj) &&
      has_tracked(s, key)) {
    // A tracked key chooses an element: the choice must be the same again.
    ErrorGuard error;
    rely_on(s, key);
  }
  {
    ErrorGuard error;
    for (PyObject* v : {obj, key})
      if (!is_leaf(v)) read_protocols(s, Py_TYPE(v));
    if (PySlice_Check(key)) {
      auto* slice = reinterpret_cast<PySliceObject*>(key);
      for (PyObject* v : {slice->start, slice->stop, slice->step}) read_protocols(s, Py_TYPE(v));
    }
    if (PyType_Check(obj) && is_heap(reinterpret_cast<PyTypeObject*>(obj)))
      read_protocols(s, reinterpret_cast<PyTypeObject*>(obj));
  }
  if (PyTuple_Check(obj) || is_leaf(obj)) return;
  ErrorGuard error;
  if (choice) {
    if (known_outside(s, obj)) touch_kept(s, obj, false);
    return;
  }
  if (!is_leaf(key) && copies(obj)) touch_kept(s, key, true);  // a list of places
  if (PyObject* factory = factory_of(obj)) {
    const bool outside = known_outside(s, obj);
    const bool can_ask = outside ? look_for_key(s, obj, key) : known_key(s, obj, key);
    PyObject* there = can_ask ? dict_item(obj, key) : nullptr;
    if (there == nullptr) {
      PyErr_Clear();
      if (outside) reach(s, factory);
      touch(s, factory, true);
      factory_used(s, factory);
    }
  }
  // What is computed from an array that is an input is computed again.
  if (!known_outside(s, obj) || tracked(s, obj)) return;
  if (PyDict_Check(obj)) {
    const bool can_ask = look_for_key(s, obj, key);
    // A subclass may insert what is missing: what is there is asked before.
    if (!PyDict_CheckExact(obj)) {
      ensure_pre(s, obj);
      if (!logs_what_is_made(s, obj, key)) s->containers[obj].unlogged = true;
      if (can_ask) {
        PyObject* now = dict_item(obj, key);
        if (now == nullptr) PyErr_Clear();
        // What is there may be a counter (`on_item_load`).
        static PyObject* const str_getitem = PyUnicode_InternFromString("__getitem__");
        const bool plain =
            _PyType_Lookup(Py_TYPE(obj), str_getitem) == _PyType_Lookup(&PyDict_Type, str_getitem);
        if (!plain || !may_count(now) || has_tracked(s, key)) read_dict(s, obj, key, now);
      }
    }
    return;
  }
  if (!read_item(s, obj, key) && !read_slice(s, obj, key)) touch_items(s, obj);
}

ToC on_item_load_pre(PyObject* obj, PyObject* key) {
  Session* s = tls_session;
  count_event(s);
  const ToC use = computes(obj) && !PyDict_Check(obj) ? kComputed : kPassedOn;
  item_load_pre(s, obj, key);
  return use;
}

bool makes_item(PyObject* obj, PyObject* key) {
  if (!Py_IS_TYPE(obj, g_defaultdict_type)) return false;
  Session* s = tls_session;
  ErrorGuard error;
  if (!logs_what_is_made(s, obj, key) || !known_outside(s, obj)) return false;
  const bool there = dict_item(obj, key) != nullptr;
  PyErr_Clear();
  return !there;
}

PyObject* on_item_load(PyObject* obj, PyObject* key, PyObject* result, bool made) {
  Session* s = tls_session;
  if (result != nullptr) shown(s, result);
  if (loads_from_table(s, obj, key)) {
    if (result != nullptr) return derive(s, "table_item", 0, obj, key, result);
    ErrorGuard error;
    ask(s, "table_has", obj, key, Py_False);
    return result;
  }
  if (!s->tracked.empty() && seen(s, kValueAt, obj, key)) return result;
  // The key is the same again, and what the dict has under it is read none the less.
  const bool keyed = !is_tensor(obj) && !tracked(s, obj) && has_tracked(s, key);
  if (result != nullptr && !is_tensor(obj) && (tracked(s, obj) || keyed)) {
    const bool choice = keyed && chooses(s, obj, key);
    result = derive(s, "item", choice, obj, key, result);
    if (!keyed || choice) return result;
  }
  if (PyDict_Check(obj) && known_outside(s, obj)) {
    ErrorGuard error;
    PyObject* now = result;
    const bool can_ask = can_search(s, obj, key);
    if (!PyDict_CheckExact(obj) && can_ask) now = dict_item(obj, key);
    if (made && result != nullptr) note_store(s, obj, key, result);
    if (result != nullptr && now == result && !keyed && can_ask &&
        counter_read(s, obj, key, result))
      return take_replaced(s, result);
    read_dict(s, obj, key, now);
  }
  return result;
}

// list[i] = value: whether no element but that one counts, and of that only that it is there.
static bool store_item(Session* s, PyObject* list, PyObject* key, PyObject* value) {
  if (value == nullptr || !PyList_CheckExact(list) || !PyLong_CheckExact(key)) return false;
  int overflow = 0;
  const Py_ssize_t index = PyLong_AsLongAndOverflow(key, &overflow);
  const Py_ssize_t now = PyList_GET_SIZE(list), place = index < 0 ? now + index : index;
  if (overflow != 0 || place < 0 || place >= now) return false;
  if (!ensure_pre(s, list)) return true;
  const Ref number = Ref::steal(PyLong_FromSsize_t(place));
  const Py_ssize_t before = PyTuple_GET_SIZE(s->containers[list].pre.get());
  const Ref length = Ref::steal(PyLong_FromSsize_t(before));
  if (!number || !length) {
    fail(s, "list item");
    return true;
  }
  const bool held = place < before;
  if (!s->containers[list].whole) {
    // A place in what was appended is told from the end; what others append moves all of these.
    if (index < 0 ? others_ran(s) : !held)
      touch_kept(s, list, false);
    else if (held && first_time(s, kListLength, list, nullptr))
      emit(s, kListLength, list, nullptr, length.get());
  }
  note_store(s, list, number.get(), value);
  return true;
}

// It looks into the value: what goes to several places at once, and all that an array is given.
static bool takes_apart(PyObject* obj, PyObject* key) {
  if (PyList_Check(obj) || PyByteArray_Check(obj)) return PySlice_Check(key);
  return copies(obj);
}

// What is read and kept before obj[key] = value, or del obj[key], is done.
static void item_store_pre(Session* s, PyObject* obj, PyObject* key, PyObject* value) {
  if (!is_tensor(obj)) {
    ErrorGuard error;
    read_protocols(s, Py_TYPE(obj));
  }
  if (value != nullptr && asks_table(s, obj, key)) {
    ErrorGuard error;
    store_in_table(s, obj, key, value);
    return;
  }
  const bool known = is_new_key(s, obj, key);
  if (known && value == nullptr) {
    note_store(s, obj, key, nullptr);
    return;
  }
  if (!s->tracked.empty() && !is_tensor(obj) && !known &&
      !(value != nullptr && puts_at_new_key(s, obj, key))) {
    ErrorGuard error;
    if (tracked(s, obj)) {
      ask(s, "array_written", obj);
      return;
    }
    rely_on(s, key);
    if (value != nullptr && copies(obj)) rely_on(s, value);
  }
  if (!is_leaf(key) && copies(obj)) {
    ErrorGuard error;
    touch_kept(s, key, true);
  }
  if (value != nullptr && (!is_leaf(value) || tracked(s, value)) && takes_apart(obj, key)) {
    ErrorGuard error;
    touch(s, value, !PyList_Check(obj));
  }
  if (!known_outside(s, obj)) return;
  ErrorGuard error;
  if (PyDict_Check(obj)) {
    look_for_key(s, obj, key);
    dict_store(s, obj, key, value);
    return;
  }
  if (!store_item(s, obj, key, value)) touch_items(s, obj);
}

ToC on_item_store(PyObject* obj, PyObject* key, PyObject* value) {
  Session* s = tls_session;
  count_event(s);
  const ToC use = computes(obj) ? kComputed : kPassedOn;
  item_store_pre(s, obj, key, value);
  return use;
}

// Whether an outside set was asked for an element alone, which guards ask it again: its other
// elements do not count, nor their order, which is another one in every process where they hash by
// their address.
static bool asks_set(Session* s, PyObject* c, PyObject* item) {
  const PyTypeObject* t = Py_TYPE(item);
  const bool by_address = PyType_Check(item) && t->tp_hash == PyType_Type.tp_hash &&
                          t->tp_richcompare == PyType_Type.tp_richcompare;
  if (!PyAnySet_CheckExact(c) || !(is_leaf(item) || by_address)) return false;
  const auto known = s->containers.find(c);
  // What the run has written to it, the guard does not know.
  if (known != s->containers.end() && known->second.pre) return false;
  return ask(s, "set_asked", c, item).get() == Py_True;
}

bool compares_numbers(PyObject* c, PyObject* item) {
  constexpr Py_ssize_t kMost = 16;
  Session* s = tls_session;
  const auto is_number = [](PyObject* v) { return PyLong_CheckExact(v) || PyFloat_CheckExact(v); };
  if (s->tracked.empty() || !is_number(item)) return false;
  if (!PyTuple_CheckExact(c) && (!PyList_CheckExact(c) || known_outside(s, c))) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(c);
  bool any = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* v = PySequence_Fast_GET_ITEM(c, i);
    if (!is_number(v)) return false;
    any = any || tracked(s, v);
  }
  return any && n <= kMost;
}

void on_contains_pre(PyObject* c, PyObject* item) {
  Session* s = tls_session;
  count_event(s);
  if (asks_table(s, c, item) || is_new_key(s, c, item)) return;
  if (!is_tensor(c)) {
    ErrorGuard error;
    read_protocols(s, Py_TYPE(c));
  }
  if (!s->tracked.empty() && !is_tensor(c)) {
    ErrorGuard error;
    if (tracked(s, item) && ask(s, "contains", c, item).get() == Py_True) {
      touch_kept(s, c, false);
    } else {
      rely_on(s, item);
      // A dict is asked for its keys only, and storing a key relies on it already.
      if (!PyDict_Check(c)) rely_on(s, c);
    }
  }
  ErrorGuard error;
  if (!is_tensor(c)) touch_compared(s, item);
  const bool by_hash = PyDict_Check(c) && known_key(s, c, item);
  const bool outside = known_outside(s, c);
  if (by_hash && outside) look_for_key(s, c, item);
  const bool asked = outside && asks_set(s, c, item);
  if (!is_leaf(c) && !PyTuple_Check(c) && !by_hash && !asked && outside) touch(s, c, is_deque(c));
  if (!outside && PyIter_Check(c)) touch_kept(s, c, true);  // it compares all that it gives
  // What is in these is compared with the item one by one, and is known to be outside by now; a
  // dict and a set look for its hash first.
  for (Py_ssize_t i = 0; is_sequence(c) && i < PySequence_Fast_GET_SIZE(c); ++i)
    touch_compared(s, PySequence_Fast_GET_ITEM(c, i));
  if (!PyDictValues_Check(c) && !PyDictItems_Check(c)) return;
  const Ref items = Ref::steal(PySequence_List(c));
  if (!items) return fail(s, "contains");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
    touch_compared(s, PyList_GET_ITEM(items.get(), i));
}

void on_contains(PyObject* c, PyObject* item, int outcome) {
  Session* s = tls_session;
  if (outcome >= 0 && asks_table(s, c, item)) {
    ErrorGuard error;
    ask(s, "table_has", c, item, outcome != 0 ? Py_True : Py_False);
    return;
  }
  if (is_new_key(s, c, item)) return;
  if (!PyDict_Check(c) || !known_outside(s, c) || !can_search(s, c, item)) return;
  ErrorGuard error;
  PyObject* found = dict_item(c, item);
  // That there is a number is part of the guard of one that is an input.
  if (found == nullptr || !counter_read(s, c, item, found)) read_dict(s, c, item, found);
  s->replaced.reset();
}

}  // namespace magpy
