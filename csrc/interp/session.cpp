// The capture session: which objects are outside, what was read of them, and what they were before the program wrote to them.
//
// Owns: the session object of a running capture (`_interp.Session`), its event log and the shallow copies of outside containers.
// Does not own: the meaning of the log (magpy/refgraph analyses it after the run), the operator graph (magpy/capture/recorder),
// nor what a C function does (magpy/capture/leaves classifies it, the verdicts are cached here).  Called by the probes and the
// frame-evaluation hook with the GIL held.
//
// An object is outside when it existed before the call and the program reached it: roots, and everything read from an outside
// object that the program itself did not put there.  Outside objects are held, so an address met during the run never means
// two things.  Values made by the program are never held.

#include "session.h"

#include <structmember.h>

#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frame_eval.h"

namespace magpy {

thread_local Session* tls_session = nullptr;
thread_local int tls_pause = 0;
thread_local bool tls_c_call = false;

namespace {

enum Kind : uint8_t {
  kDictKey,    // dict, key, value or ABSENT
  kLinkDict,   // object, its instance dict
  kTypeAttr,   // type, name, value or ABSENT
  kSuper,      // type of the instance, (class after which to look, name), value or ABSENT
  kAttrC,      // object, name, value of a C descriptor, or ABSENT
  kCell,       // cell, -, content or ABSENT
  kFunc,       // function, -, (code, defaults, kwdefaults)
  kSnap,       // container, -, its content before the program wrote to it
  kWriteAttr,  // object, name, old value of a C descriptor or ABSENT
  kWriteType,  // type, name, old value or ABSENT
  kObject,     // an outside object was reached
};
const char* const kKindNames[] = {"dict_key", "link_dict", "type_attr", "super",      "attr_c", "cell",
                                  "func",     "snap",      "write_attr", "write_type", "object"};

// What the session does around a call of something that is not a Python frame (magpy/capture/leaves.py mirrors the values).
enum Leaf : uint8_t {
  kLeafFrame = 0,
  kLeafTouch = 1,
  kLeafPure = 2,
  kLeafGetattr = 3,
  kLeafSetattr = 4,
  kLeafDelattr = 5,
  kLeafDictGet = 6,
  kLeafBlind = 7,
  kLeafDictSet = 8,
  kLeafHandler = 9,
  kLeafTorch = 10,
};

PyObject* g_module = nullptr;        // magpy._interp, borrowed: it is never unloaded
PyObject* g_absent = nullptr;        // the ABSENT sentinel
PyTypeObject* g_tensor_type = nullptr;
PyTypeObject* g_deque_type = nullptr;
PyTypeObject* g_method_wrapper_type = nullptr;  // has no public name on every version
PyObject* g_str_dict = nullptr;
PyObject* g_str_class = nullptr;
PyObject* g_str_getattr = nullptr;
PyObject* g_str_getattribute = nullptr;
PyObject* g_str_call = nullptr;
PyObject* g_str_get = nullptr;
PyObject* g_str_set = nullptr;
std::unordered_map<void*, uint8_t> g_leaves;        // verdicts on C callables, by what identifies them
std::unordered_map<void*, uint8_t> g_leaf_code;     // Python code objects that are called as a whole (held)

struct Triple {
  uintptr_t a, b;
  uint8_t kind;
  bool operator==(const Triple& o) const { return a == o.a && b == o.b && kind == o.kind; }
};
struct TripleHash {
  size_t operator()(const Triple& t) const {
    uintptr_t h = (t.a >> 4) * 0x9E3779B97F4A7C15ull;
    h ^= ((t.b >> 4) + 0x7F4A7C15ull) * 0xC2B2AE3D27D4EB4Full + t.kind;
    return h ^ (h >> 29);
  }
};

// (file, line, name) of counters: names that the code which starts at that line both reads and stores.  The strings are held.
std::unordered_set<Triple, TripleHash> g_counters;

struct Event {
  PyObject* obj;
  PyObject* key;
  PyObject* value;
  Kind kind;
};

struct Container {
  PyObject* pre = nullptr;  // shallow copy from before the first write (or whole read)
  bool whole = false;
};

// Saves the exception that is set while the session looks at something, whatever happens in between.
struct ErrorGuard {
  PyObject *type, *value, *tb;
  ErrorGuard() { PyErr_Fetch(&type, &value, &tb); }
  ~ErrorGuard() { PyErr_Restore(type, value, tb); }
  ErrorGuard(const ErrorGuard&) = delete;
  ErrorGuard& operator=(const ErrorGuard&) = delete;
};

struct PauseGuard {
  PauseGuard() { ++tls_pause; }
  ~PauseGuard() { --tls_pause; }
};

inline bool is_leaf(PyObject* v) {
  PyTypeObject* t = Py_TYPE(v);
  return t == &PyLong_Type || t == &PyUnicode_Type || v == Py_None || t == &PyFloat_Type || t == &PyBool_Type ||
         t == &PyBytes_Type || t == &PyComplex_Type || v == Py_Ellipsis || v == Py_NotImplemented ||
         t == &PySlice_Type || t == &PyRange_Type || t == &PyCode_Type;
}

inline bool is_heap(PyTypeObject* t) { return (t->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }
inline bool is_tensor(PyObject* v) { return g_tensor_type != nullptr && PyObject_TypeCheck(v, g_tensor_type); }
inline bool is_deque(PyObject* v) { return g_deque_type != nullptr && PyObject_TypeCheck(v, g_deque_type); }

// A key can be held in the log when it is nothing that the program made and eager would free or observe.
bool plain_key(PyObject* k) {
  if (is_leaf(k) || PyType_Check(k) || PyFunction_Check(k)) return true;
  if (PyTuple_CheckExact(k)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); ++i)
      if (!plain_key(PyTuple_GET_ITEM(k, i))) return false;
    return true;
  }
  return false;
}

}  // namespace

struct Session {
  PyObject_HEAD
  PyObject* handler;  // magpy.capture.session.Handler
  std::unordered_map<PyObject*, bool>* outside;  // strong references
  std::vector<Event>* log;
  std::unordered_set<Triple, TripleHash>* seen;
  std::unordered_map<PyObject*, Container>* containers;  // keys are in `outside`
  std::unordered_map<PyObject*, PyObject*>* cells;       // outside cells (strong) -> content before a write or nullptr
  std::unordered_set<PyObject*>* written_cells;
  std::unordered_set<PyObject*>* counter_cells;          // in `cells`
  std::unordered_map<PyObject*, long>* tracked;          // values that differ from call to call (strong) -> variable
  std::unordered_set<PyObject*>* made;                   // functions that the program made (addresses only)
  PyObject* replaced;                                    // what a read of a counter gives instead, or nullptr
  PyObject* failure;                                     // first internal failure, or nullptr
  unsigned long long events;
};

namespace {

void fail(Session* s, const char* where) {
  // An exception may be set: it is the reason.
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  if (s->failure == nullptr) {
    if (type != nullptr) {
      PyErr_NormalizeException(&type, &value, &tb);
      if (tb != nullptr) PyException_SetTraceback(value, tb);
      s->failure = Py_BuildValue("(sO)", where, value ? value : Py_None);
    } else {
      s->failure = Py_BuildValue("(sO)", where, Py_None);
    }
    if (s->failure == nullptr) PyErr_Clear();
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
}

inline bool known_outside(Session* s, PyObject* o) { return s->outside->find(o) != s->outside->end(); }

void emit(Session* s, Kind kind, PyObject* obj, PyObject* key, PyObject* value) {
  s->log->push_back(Event{Py_NewRef(obj), Py_XNewRef(key), Py_XNewRef(value ? value : g_absent), kind});
}

inline bool first_time(Session* s, Kind kind, PyObject* obj, PyObject* key) {
  return s->seen->insert(Triple{reinterpret_cast<uintptr_t>(obj), reinterpret_cast<uintptr_t>(key), kind}).second;
}

// Whether the run has written this C descriptor of an outside object: what is read there is the run's own.
bool written(Session* s, PyObject* obj, PyObject* name) {
  return s->seen->count(Triple{reinterpret_cast<uintptr_t>(obj), reinterpret_cast<uintptr_t>(name), kWriteAttr}) != 0;
}

// Makes obj an outside object.  Immutable containers are looked through at once: their content cannot change.
void reach(Session* s, PyObject* v, int depth = 0) {
  if (v == nullptr || is_leaf(v)) return;
  if (!s->outside->emplace(v, true).second) return;
  Py_INCREF(v);
  emit(s, kObject, v, nullptr, nullptr);
  if (depth > 50) return;
  if (PyTuple_Check(v)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); ++i) reach(s, PyTuple_GET_ITEM(v, i), depth + 1);
  } else if (PyMethod_Check(v)) {
    reach(s, PyMethod_GET_SELF(v), depth + 1);
    reach(s, PyMethod_GET_FUNCTION(v), depth + 1);
  } else if (PyFrozenSet_Check(v)) {
    PyObject* it = PyObject_GetIter(v);
    PyObject* x;
    while (it != nullptr && (x = PyIter_Next(it)) != nullptr) {
      reach(s, x, depth + 1);
      Py_DECREF(x);
    }
    Py_XDECREF(it);
    PyErr_Clear();
  }
}

PyObject* shallow_copy(PyObject* o) {
  if (PyDict_Check(o)) {
    // PyDict_Copy keeps order and ignores overridden methods of subclasses.
    PyObject* copy = PyDict_New();
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    // OrderedDict keeps an order of its own that raw iteration does not show.
    if (!PyDict_CheckExact(o) && PyObject_TypeCheck(o, &PyODict_Type)) {
      PyObject* items = PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "items", "O", o);
      PyObject* list = items ? PySequence_List(items) : nullptr;
      Py_XDECREF(items);
      for (Py_ssize_t i = 0; list != nullptr && i < PyList_GET_SIZE(list); ++i) {
        PyObject* kv = PyList_GET_ITEM(list, i);
        PyDict_SetItem(copy, PyTuple_GET_ITEM(kv, 0), PyTuple_GET_ITEM(kv, 1));
      }
      Py_XDECREF(list);
      return copy;
    }
    while (copy != nullptr && PyDict_Next(o, &pos, &k, &v))
      if (PyDict_SetItem(copy, k, v) < 0) {
        Py_DECREF(copy);
        return nullptr;
      }
    return copy;
  }
  if (PyList_Check(o)) return PyList_AsTuple(o);
  if (PyAnySet_Check(o)) return PyFrozenSet_New(o);
  if (PyByteArray_Check(o)) return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(o), PyByteArray_GET_SIZE(o));
  if (is_deque(o)) return PySequence_Tuple(o);
  return nullptr;
}

inline bool is_container(PyObject* o) {
  return PyDict_Check(o) || PyList_Check(o) || PySet_Check(o) || PyByteArray_Check(o) || is_deque(o);
}

Container& container(Session* s, PyObject* o) { return (*s->containers)[o]; }

bool ensure_pre(Session* s, PyObject* o) {
  Container& c = container(s, o);
  if (c.pre != nullptr) return true;
  PyObject* copy;
  {
    PauseGuard pause;
    copy = shallow_copy(o);
  }
  if (copy == nullptr) {
    fail(s, "snapshot");
    return false;
  }
  container(s, o).pre = copy;
  return true;
}

void reach_content(Session* s, PyObject* pre) {
  if (PyDict_Check(pre)) {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(pre, &pos, &k, &v)) {
      reach(s, k);
      reach(s, v);
    }
  } else if (PyTuple_Check(pre)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pre); ++i) reach(s, PyTuple_GET_ITEM(pre, i));
  } else if (PyFrozenSet_Check(pre)) {
    PauseGuard pause;
    PyObject* it = PyObject_GetIter(pre);
    PyObject* x;
    while (it != nullptr && (x = PyIter_Next(it)) != nullptr) {
      reach(s, x);
      Py_DECREF(x);
    }
    Py_XDECREF(it);
    if (PyErr_Occurred()) fail(s, "snapshot");
  }
}

// Asks the Python side; a failure there drops the capture.
PyObject* ask(Session* s, const char* method, PyObject* a, PyObject* b = nullptr) {
  PauseGuard pause;
  PyObject* name = PyUnicode_InternFromString(method);
  if (name == nullptr) {
    fail(s, method);
    return nullptr;
  }
  PyObject* r = PyObject_CallMethodObjArgs(s->handler, name, a, b, nullptr);
  Py_DECREF(name);
  if (r == nullptr) fail(s, method);
  return r;
}

inline bool tracked(Session* s, PyObject* o) {
  return !s->tracked->empty() && o != nullptr && s->tracked->find(o) != s->tracked->end();
}

// Whether a tracked value is in an argument, where a C function would find it.
bool has_tracked(Session* s, PyObject* v, int depth = 0) {
  if (s->tracked->empty()) return false;
  if (tracked(s, v)) return true;
  if (depth > 3) return false;
  if (PyTuple_Check(v) || PyList_Check(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i)
      if (has_tracked(s, PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
  } else if (PyDict_Check(v)) {
    PyObject *k, *x;
    Py_ssize_t pos = 0;
    while (PyDict_Next(v, &pos, &k, &x))
      if (has_tracked(s, x, depth + 1)) return true;
  } else if (PySlice_Check(v)) {
    auto* slice = reinterpret_cast<PySliceObject*>(v);
    return tracked(s, slice->start) || tracked(s, slice->stop) || tracked(s, slice->step);
  }
  return false;
}

// From here on the run relies on the value being what it was: the handler adds a check.
void rely_on(Session* s, PyObject* o) {
  if (!has_tracked(s, o)) return;
  PyObject* r = ask(s, "rely_on", o);
  Py_XDECREF(r);
}

// A value came of an operation with tracked operands.  Steals result.
PyObject* derive(Session* s, const char* method, int op, PyObject* a, PyObject* b, PyObject* result) {
  PauseGuard pause;
  ErrorGuard error;
  PyObject* r = PyObject_CallMethod(s->handler, method, "iOOO", op, a, b ? b : Py_None, result);
  if (r == nullptr) {
    fail(s, method);
    return result;
  }
  Py_DECREF(result);
  return r;
}

void touch(Session* s, PyObject* o, bool deep, int depth = 0) {
  if (depth == 0 && !s->tracked->empty()) rely_on(s, o);
  if (is_leaf(o) || PyType_Check(o) || PyModule_Check(o) || PyFunction_Check(o)) return;
  if (!known_outside(s, o)) {
    // A container of the program may hold outside containers, which a C function then looks into.
    if (deep && depth < 4 && (PyTuple_CheckExact(o) || PyList_CheckExact(o))) {
      Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(o); ++i)
        touch(s, PySequence_Fast_GET_ITEM(o, i), true, depth + 1);
    }
    return;
  }
  if (PyTuple_Check(o)) {
    if (deep && depth < 20)
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) touch(s, PyTuple_GET_ITEM(o, i), true, depth + 1);
    return;
  }
  if (is_tensor(o)) return;
  if (is_container(o)) {
    if (!container(s, o).whole) {
      if (!ensure_pre(s, o)) return;
      Container& c = container(s, o);
      c.whole = true;
      emit(s, kSnap, o, nullptr, c.pre);
      reach_content(s, c.pre);
    }
    if (deep && depth < 20) {
      PyObject* pre = Py_NewRef(container(s, o).pre);
      if (PyDict_Check(pre)) {
        PyObject *k, *v;
        Py_ssize_t pos = 0;
        while (PyDict_Next(pre, &pos, &k, &v)) touch(s, v, true, depth + 1);
      } else if (PyTuple_Check(pre)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pre); ++i) touch(s, PyTuple_GET_ITEM(pre, i), true, depth + 1);
      }
      Py_DECREF(pre);
    }
    return;
  }
  if (PyMethod_Check(o)) return;
  if (first_time(s, kSnap, o, nullptr)) {
    PyObject* r = ask(s, "touch", o, deep ? Py_True : Py_False);
    Py_XDECREF(r);
  }
}

void read_type_attr(Session* s, PyTypeObject* t, PyObject* name, PyObject* found) {
  if (!first_time(s, kTypeAttr, reinterpret_cast<PyObject*>(t), name)) return;
  emit(s, kTypeAttr, reinterpret_cast<PyObject*>(t), name, found);
}

// A key of an outside dict was read.  What counts is the value from before the program's own writes.
void read_dict(Session* s, PyObject* dict, PyObject* key, PyObject* now) {
  if (!plain_key(key)) {
    touch(s, dict, false);
    return;
  }
  PyObject* before = now;
  auto it = s->containers->find(dict);
  if (it != s->containers->end() && it->second.pre != nullptr) {
    before = PyDict_GetItemWithError(it->second.pre, key);
    if (before == nullptr && PyErr_Occurred()) {
      fail(s, "dict read");
      return;
    }
    // The program put this value there itself: nothing from outside was read.
    if (now != before && !(now != nullptr && before != nullptr && is_leaf(now) && Py_TYPE(now) == Py_TYPE(before))) return;
  }
  if (!first_time(s, kDictKey, dict, key)) return;
  emit(s, kDictKey, dict, key, before);
  reach(s, before);
}

Triple counter_key(PyCodeObject* code, PyObject* name) {
  return Triple{reinterpret_cast<uintptr_t>(code->co_filename) ^ (static_cast<uintptr_t>(code->co_firstlineno) << 40),
                reinterpret_cast<uintptr_t>(name), 0};
}

// Whether the code that runs now, or its original, is one that stores this name too.
bool counts_here(PyObject* name) {
  if (g_counters.empty()) return false;
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  PyCodeObject* code = PyFrame_GetCode(frame);
  bool found = g_counters.find(counter_key(code, name)) != g_counters.end();
  Py_DECREF(code);
  return found;
}

// A number that the program reads and will store again, a counter: it is another number in every call, so it becomes an input
// that is followed by its identity, not a constant.  The equal number put in its place has an identity of its own.
bool counter_read(Session* s, PyObject* dict, PyObject* name, PyObject* value) {
  if (value == nullptr || !(PyLong_CheckExact(value) || PyFloat_CheckExact(value))) return false;
  if (!counts_here(name)) return false;
  if (s->tracked->find(value) != s->tracked->end()) return true;
  auto it = s->containers->find(dict);
  if (it != s->containers->end() && it->second.pre != nullptr) return false;
  if (!first_time(s, kDictKey, dict, name)) return false;
  PyObject* fresh;
  {
    PauseGuard pause;
    fresh = PyObject_CallMethod(s->handler, "counter", "OOO", dict, name, value);
  }
  if (fresh == nullptr || PyDict_SetItem(dict, name, fresh) < 0) {
    Py_XDECREF(fresh);
    fail(s, "counter");
    return true;
  }
  Py_XSETREF(s->replaced, fresh);
  return true;
}

PyObject* take_replaced(Session* s, PyObject* value) {
  if (s->replaced == nullptr) return value;
  Py_XDECREF(value);
  value = s->replaced;
  s->replaced = nullptr;
  return value;
}

PyObject* instance_dict(Session* s, PyObject* obj) {
  PyTypeObject* t = Py_TYPE(obj);
  if (PyType_Check(obj)) return nullptr;
  if (PyModule_Check(obj)) return PyModule_GetDict(obj);
#if PY_VERSION_HEX >= 0x030C0000
  bool has = (t->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0 || t->tp_dictoffset != 0;
#else
  bool has = t->tp_dictoffset != 0;
#endif
  if (!has) return nullptr;
  PyObject* d = PyObject_GenericGetDict(obj, nullptr);
  if (d == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  // The object holds its dict as long as it lives, and outside objects are held.
  Py_DECREF(d);
  if (!PyDict_Check(d)) return nullptr;
  if (s->outside->emplace(d, true).second) Py_INCREF(d);
  if (!PyModule_Check(obj) && first_time(s, kLinkDict, obj, nullptr)) emit(s, kLinkDict, obj, nullptr, d);
  return d;
}

bool outside_object(Session* s, PyObject* o) {
  if (PyModule_Check(o)) return true;
  if (PyFunction_Check(o)) return s->made->find(o) == s->made->end();
  return known_outside(s, o);
}

void super_read(Session* s, PyObject* super, PyObject* name, PyObject* value) {
  PauseGuard pause;
  PyObject* self_class = PyObject_GetAttrString(super, "__self_class__");
  PyObject* this_class = PyObject_GetAttrString(super, "__thisclass__");
  if (self_class != nullptr && this_class != nullptr && PyType_Check(self_class)) {
    PyObject* mro = reinterpret_cast<PyTypeObject*>(self_class)->tp_mro;
    PyObject* found = nullptr;
    bool after = false;
    for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro) && found == nullptr; ++i) {
      PyObject* cls = PyTuple_GET_ITEM(mro, i);
      if (after && PyType_Check(cls)) {
        PyObject* d = PyObject_GetAttr(cls, g_str_dict);  // a mapping proxy; static types have no tp_dict of their own on 3.12+
        PyObject* v = d ? PyObject_GetItem(d, name) : nullptr;
        if (v == nullptr) PyErr_Clear();
        Py_XDECREF(d);
        if (v != nullptr) {
          found = v;
          Py_DECREF(v);
        }
      }
      if (cls == this_class) after = true;
    }
    if (first_time(s, kSuper, self_class, name)) {
      PyObject* key = PyTuple_Pack(2, this_class, name);
      if (key != nullptr) emit(s, kSuper, self_class, key, found);
      Py_XDECREF(key);
      // A second class in the same chain asks under the same name: it must not be taken for seen.
      s->seen->erase(Triple{reinterpret_cast<uintptr_t>(self_class), reinterpret_cast<uintptr_t>(name), kSuper});
    }
    if (found != nullptr && found == value) reach(s, value);
  } else {
    PyErr_Clear();
  }
  Py_XDECREF(self_class);
  Py_XDECREF(this_class);
}

void attr_load(Session* s, PyObject* obj, PyObject* name, PyObject* value) {
  if (PyModule_Check(obj)) {
    PyObject* d = instance_dict(s, obj);
    if (d == nullptr) return;
    PyObject* in_dict = PyDict_GetItemWithError(d, name);
    read_dict(s, d, name, in_dict);
    return;
  }
  PyTypeObject* t = Py_TYPE(obj);
  if (PyType_Check(obj)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(obj);
    PyObject* found = _PyType_Lookup(as_type, name);
    if (is_heap(as_type)) read_type_attr(s, as_type, name, found);
    if (is_heap(t)) read_type_attr(s, t, name, _PyType_Lookup(t, name));
    if (found != nullptr && found == value) reach(s, value);
    return;
  }
  if (t == &PySuper_Type) {
    super_read(s, obj, name, value);
    return;
  }
  PyObject* descr = _PyType_Lookup(t, name);
  if (is_heap(t)) {
    read_type_attr(s, t, name, descr);
    read_type_attr(s, t, g_str_getattribute, _PyType_Lookup(t, g_str_getattribute));
    if (value == nullptr || t->tp_getattro != PyObject_GenericGetAttr) read_type_attr(s, t, g_str_getattr, _PyType_Lookup(t, g_str_getattr));
  }
  if (!outside_object(s, obj)) {
    if (descr != nullptr && (descr == value || is_heap(Py_TYPE(descr)))) reach(s, descr);
    return;
  }
  if (descr != nullptr && is_heap(Py_TYPE(descr))) reach(s, descr);  // a descriptor written in Python has state of its own
  if (name == g_str_class) return;
  if (descr != nullptr && Py_TYPE(descr)->tp_descr_set != nullptr) {
    if (Py_TYPE(descr) == &PyProperty_Type || is_tensor(obj)) return;
    if (is_heap(Py_TYPE(descr))) return;  // a descriptor written in Python: its frame is watched
    if (name == g_str_dict) {
      instance_dict(s, obj);
      return;
    }
    if (written(s, obj, name) || !first_time(s, kAttrC, obj, name)) return;
    emit(s, kAttrC, obj, name, value);
    reach(s, value);
    return;
  }
  if (is_tensor(obj) && descr != nullptr) return;
  PyObject* d = instance_dict(s, obj);
  PyObject* in_dict = nullptr;
  if (d != nullptr) {
    in_dict = PyDict_GetItemWithError(d, name);
    if (in_dict == nullptr && PyErr_Occurred()) PyErr_Clear();
    if (in_dict == nullptr || in_dict != value || !counter_read(s, d, name, in_dict)) read_dict(s, d, name, in_dict);
  }
  if (in_dict == nullptr && descr != nullptr && descr == value) reach(s, value);
  if (d == nullptr && descr == nullptr && !is_heap(t) && first_time(s, kAttrC, obj, name)) {
    emit(s, kAttrC, obj, name, value);
    reach(s, value);
  }
}

// A key of an outside dict is stored or deleted.  A store of what is there already changes nothing and would not be redone:
// that it is there must hold again.
void dict_store(Session* s, PyObject* d, PyObject* key, PyObject* value) {
  PyObject* now = PyDict_GetItemWithError(d, key);
  if (now == nullptr) PyErr_Clear();
  bool same = now != nullptr && value != nullptr && !tracked(s, value) &&
              (now == value || (is_leaf(now) && Py_TYPE(now) == Py_TYPE(value)));
  if (value == nullptr || same) read_dict(s, d, key, now);
  // Likewise when the run has changed it and now puts it back.
  auto it = s->containers->find(d);
  if (it != s->containers->end() && it->second.pre != nullptr) {
    PyObject* before = PyDict_GetItemWithError(it->second.pre, key);
    if (before == nullptr) PyErr_Clear();
    bool back = before == value || (before != nullptr && value != nullptr && is_leaf(before) && Py_TYPE(before) == Py_TYPE(value));
    if (back && first_time(s, kDictKey, d, key)) {
      emit(s, kDictKey, d, key, before);
      reach(s, before);
    }
    return;
  }
  ensure_pre(s, d);
}

void attr_store(Session* s, PyObject* obj, PyObject* name, PyObject* value) {
  PyTypeObject* t = Py_TYPE(obj);
  if (PyType_Check(obj)) {
    PyObject* d = PyObject_GetAttr(obj, g_str_dict);
    PyObject* old = d ? PyObject_GetItem(d, name) : nullptr;
    PyErr_Clear();
    // Only what is there can be deleted.
    if (value == nullptr && is_heap(reinterpret_cast<PyTypeObject*>(obj)))
      read_type_attr(s, reinterpret_cast<PyTypeObject*>(obj), name, _PyType_Lookup(reinterpret_cast<PyTypeObject*>(obj), name));
    if (first_time(s, kWriteType, obj, name)) emit(s, kWriteType, obj, name, old);
    Py_XDECREF(old);
    Py_XDECREF(d);
    return;
  }
  PyObject* descr = _PyType_Lookup(t, name);
  if (is_heap(t)) read_type_attr(s, t, name, descr);
  if (!outside_object(s, obj)) return;
  if (t->tp_setattro != PyObject_GenericSetAttr && is_heap(t) && descr == nullptr) {
    // A Python __setattr__ may come first; when it ends in object.__setattr__ the session is told again.
  }
  if (descr != nullptr && Py_TYPE(descr)->tp_descr_set != nullptr) {
    if (Py_TYPE(descr) == &PyProperty_Type || is_tensor(obj) || is_heap(Py_TYPE(descr))) return;
    if (!first_time(s, kWriteAttr, obj, name)) return;
    PauseGuard pause;
    PyObject* old = PyObject_GetAttr(obj, name);
    if (old == nullptr) PyErr_Clear();
    // Before the first write: what is there is what was there.
    if (value == nullptr && first_time(s, kAttrC, obj, name)) emit(s, kAttrC, obj, name, old);
    emit(s, kWriteAttr, obj, name, old);
    Py_XDECREF(old);
    return;
  }
  PyObject* d = instance_dict(s, obj);
  if (d == nullptr) return;
  dict_store(s, d, name, value);
}

// The class attribute through which C code found this method: a frame that a slot, a property or a metaclass entered.
void method_origin(Session* s, PyFunctionObject* func, PyObject* self) {
  PyTypeObject* t = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
  if (!is_heap(t)) return;
  if (!first_time(s, kFunc, reinterpret_cast<PyObject*>(func), reinterpret_cast<PyObject*>(t))) return;
  PyObject* name = reinterpret_cast<PyCodeObject*>(func->func_code)->co_name;
  PyObject* found = _PyType_Lookup(t, name);
  if (found != nullptr) {
    read_type_attr(s, t, name, found);
    if (found == reinterpret_cast<PyObject*>(func)) return;
  }
  PyObject* mro = t->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!PyType_Check(reinterpret_cast<PyObject*>(base)) || !is_heap(base) || base->tp_dict == nullptr) continue;
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(base->tp_dict, &pos, &k, &v))
      if (v == reinterpret_cast<PyObject*>(func) && PyUnicode_Check(k)) read_type_attr(s, t, k, _PyType_Lookup(t, k));
  }
}

uint8_t classify(Session* s, PyObject* f, void** key_out) {
  void* key = nullptr;
  PyTypeObject* t = Py_TYPE(f);
  if (PyFunction_Check(f)) {
    if (!g_leaf_code.empty()) {
      auto it = g_leaf_code.find(reinterpret_cast<PyFunctionObject*>(f)->func_code);
      if (it != g_leaf_code.end()) return it->second;
    }
    return kLeafFrame;
  }
  if (PyMethod_Check(f)) return classify(s, PyMethod_GET_FUNCTION(f), key_out);
  bool cache = true;
  if (PyCFunction_Check(f)) {
    key = reinterpret_cast<PyCFunctionObject*>(f)->m_ml;
    // pybind functions share nothing but live as long as their module: a static method table outlives everything.
    if (t != &PyCFunction_Type && t != &PyCMethod_Type) key = f;
    PyObject* self = reinterpret_cast<PyCFunctionObject*>(f)->m_self;
    if (self != nullptr && !PyModule_Check(self) && PyCapsule_CheckExact(self)) cache = false;
  } else if (t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type) {
    key = reinterpret_cast<PyMethodDescrObject*>(f)->d_method;
  } else if (t == &PyWrapperDescr_Type) {
    key = reinterpret_cast<PyWrapperDescrObject*>(f)->d_base;
  } else if (PyType_Check(f)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(f);
    if (is_heap(as_type)) cache = false;
    key = f;
  } else {
    if (is_heap(t)) cache = false;
    key = reinterpret_cast<char*>(t) + 1;  // calling an instance is not calling the type
  }
  if (cache) {
    auto it = g_leaves.find(key);
    if (it != g_leaves.end()) return it->second;
  } else if (PyType_Check(f)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(f);
    // Without a C constructor only frames run, and those are watched.
    if (is_heap(as_type) && as_type->tp_new == PyBaseObject_Type.tp_new) return kLeafFrame;
  }
  PyObject* r = ask(s, "classify", f);
  if (r == nullptr) return kLeafPure;
  long v = PyLong_AsLong(r);
  Py_DECREF(r);
  if (v < 0) {
    fail(s, "classify");
    return kLeafPure;
  }
  if (cache) g_leaves[key] = static_cast<uint8_t>(v);
  if (key_out) *key_out = key;
  return static_cast<uint8_t>(v);
}

struct WrapperObject {  // the layout of CPython's method-wrapper (Objects/descrobject.c), stable since 3.0
  PyObject_HEAD
  PyWrapperDescrObject* descr;
  PyObject* self;
};

PyObject* bound_self(PyObject* f) {
  if (PyCFunction_Check(f)) {
    PyObject* self = PyCFunction_GET_SELF(f);
    return self != nullptr && !PyModule_Check(self) ? self : nullptr;
  }
  if (Py_TYPE(f) == g_method_wrapper_type) return reinterpret_cast<WrapperObject*>(f)->self;
  return nullptr;
}

// C functions that hand on what an iterator or a function gives them without looking at it.
bool passes_on(PyObject* f) {
  for (PyTypeObject* t : {&PyList_Type, &PyTuple_Type, &PyEnum_Type, &PyZip_Type, &PyMap_Type, &PyFilter_Type})
    if (f == reinterpret_cast<PyObject*>(t)) return true;
  if (!PyCFunction_Check(f)) return false;
  const char* name = reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name;
  return std::strcmp(name, "next") == 0 || std::strcmp(name, "reduce") == 0;
}

PyObject* make_args(PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, PyObject** kwargs) {
  PyObject* tuple = PyTuple_New(npos);
  if (tuple == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < npos; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  *kwargs = PyDict_New();
  if (*kwargs == nullptr) {
    Py_DECREF(tuple);
    return nullptr;
  }
  Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < nkw; ++i)
    if (PyDict_SetItem(*kwargs, PyTuple_GET_ITEM(kwnames, i), args[npos + i]) < 0) {
      Py_DECREF(tuple);
      Py_CLEAR(*kwargs);
      return nullptr;
    }
  return tuple;
}

bool has_tensor(PyObject* v, int depth = 0) {
  if (is_tensor(v)) return true;
  if (depth > 3) return false;
  if (PyTuple_Check(v) || PyList_Check(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i)
      if (has_tensor(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
  } else if (PyDict_Check(v)) {
    PyObject *k, *x;
    Py_ssize_t pos = 0;
    while (PyDict_Next(v, &pos, &k, &x))
      if (has_tensor(x, depth + 1)) return true;
  }
  return false;
}

}  // namespace

// ---------------------------------------------------------------- events

void on_frame_enter(PyFunctionObject* func, PyObject* first_arg) {
  Session* s = tls_session;
  auto* f = reinterpret_cast<PyObject*>(func);
  ++s->events;
  ErrorGuard error;
  if (first_arg != nullptr && !PyLong_CheckExact(first_arg)) {
    method_origin(s, func, first_arg);
    // A descriptor stands in a class: its own state is read before the attribute that it makes is.
    if (PyUnicode_Compare(reinterpret_cast<PyCodeObject*>(func->func_code)->co_name, g_str_get) == 0 ||
        PyUnicode_Compare(reinterpret_cast<PyCodeObject*>(func->func_code)->co_name, g_str_set) == 0)
      reach(s, first_arg);
  }
  if (s->made->find(f) != s->made->end()) return;
  if (!first_time(s, kFunc, f, nullptr)) return;
  PyObject* none = Py_None;
  PyObject* state = PyTuple_Pack(3, func->func_code, func->func_defaults ? func->func_defaults : none,
                                 func->func_kwdefaults ? func->func_kwdefaults : none);
  if (state == nullptr) {
    fail(s, "frame");
    return;
  }
  emit(s, kFunc, f, nullptr, state);
  Py_DECREF(state);
  if (s->outside->emplace(func->func_globals, true).second) Py_INCREF(func->func_globals);
  reach(s, func->func_defaults);
  if (func->func_kwdefaults != nullptr) {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(func->func_kwdefaults, &pos, &k, &v)) reach(s, v);
    if (s->outside->emplace(func->func_kwdefaults, true).second) Py_INCREF(func->func_kwdefaults);
    touch(s, func->func_kwdefaults, false);
  }
  if (func->func_closure != nullptr)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(func->func_closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(func->func_closure, i);
      if (s->cells->emplace(cell, nullptr).second) Py_INCREF(cell);
      PyObject* names = reinterpret_cast<PyCodeObject*>(func->func_code)->co_localsplusnames;
      Py_ssize_t n = PyTuple_GET_SIZE(names) - PyTuple_GET_SIZE(func->func_closure) + i;
      // The names of free variables stand last.
      auto* code = reinterpret_cast<PyCodeObject*>(func->func_code);
      if (n >= 0 && g_counters.find(counter_key(code, PyTuple_GET_ITEM(names, n))) != g_counters.end())
        s->counter_cells->insert(cell);
    }
}

void on_value_to_c(PyObject* value) {
  Session* s = tls_session;
  if (s->tracked->empty() || !tracked(s, value)) return;
  if (!PyLong_CheckExact(value) && !PyFloat_CheckExact(value) && !PyUnicode_CheckExact(value)) return;
  ErrorGuard error;
  rely_on(s, value);
}

void on_uninstrumented(PyCodeObject* code, const char* why) {
  Session* s = tls_session;
  if (s == nullptr || s->failure != nullptr) return;
  ErrorGuard error;
  s->failure = Py_BuildValue("(ss)", "instrument", why);
  if (s->failure == nullptr) PyErr_Clear();
  (void)code;
}

PyObject* on_attr_load(PyObject* obj, PyObject* name, PyObject* value) {
  ++tls_session->events;
  ErrorGuard error;
  if (value != nullptr && tracked(tls_session, obj)) {
    PyObject* r = derive(tls_session, "attribute", 0, obj, name, Py_NewRef(value));
    Py_XDECREF(r);
    return value;
  }
  attr_load(tls_session, obj, name, value);
  return take_replaced(tls_session, value);
}

void on_attr_store(PyObject* obj, PyObject* name, PyObject* value) {
  ++tls_session->events;
  ErrorGuard error;
  attr_store(tls_session, obj, name, value);
}

PyObject* on_global_load(PyObject* globals, PyObject* builtins, PyObject* name, PyObject* value) {
  Session* s = tls_session;
  ++s->events;
  ErrorGuard error;
  if (s->outside->emplace(globals, true).second) Py_INCREF(globals);
  PyObject* in_globals = PyDict_GetItemWithError(globals, name);
  if (in_globals != nullptr && in_globals == value && counter_read(s, globals, name, value)) return take_replaced(s, value);
  read_dict(s, globals, name, in_globals);
  if (in_globals == nullptr && builtins != nullptr && PyDict_Check(builtins)) {
    if (s->outside->emplace(builtins, true).second) Py_INCREF(builtins);
    read_dict(s, builtins, name, value);
  }
  PyErr_Clear();
  return value;
}

void on_global_store(PyObject* globals, PyObject* name, PyObject* value) {
  Session* s = tls_session;
  ++s->events;
  ErrorGuard error;
  if (s->outside->emplace(globals, true).second) Py_INCREF(globals);
  dict_store(s, globals, name, value);
}

void on_name_access(PyObject* locals, PyObject* name) {
  Session* s = tls_session;
  ++s->events;
  ErrorGuard error;
  (void)name;
  if (known_outside(s, locals)) {
    touch(s, locals, false);
  }
}

void on_cell_load(PyObject* cell, PyObject* value) {
  Session* s = tls_session;
  ++s->events;
  auto it = s->cells->find(cell);
  if (it == s->cells->end() || s->written_cells->count(cell) != 0) return;
  if (!first_time(s, kCell, cell, nullptr)) return;
  ErrorGuard error;
  if (value != nullptr && (PyLong_CheckExact(value) || PyFloat_CheckExact(value)) && s->counter_cells->count(cell) != 0) {
    PauseGuard pause;
    PyObject* fresh = PyObject_CallMethod(s->handler, "counter", "OOO", cell, Py_None, value);
    if (fresh == nullptr || PyCell_Set(cell, fresh) < 0) fail(s, "counter");
    Py_XDECREF(fresh);
    return;
  }
  emit(s, kCell, cell, nullptr, value);
  reach(s, value);
}

void on_cell_store(PyObject* cell) {
  Session* s = tls_session;
  ++s->events;
  auto it = s->cells->find(cell);
  if (it == s->cells->end() || !s->written_cells->insert(cell).second) return;
  it->second = Py_XNewRef(PyCell_GET(cell));
}

void on_item_load_pre(PyObject* obj, PyObject* key) {
  Session* s = tls_session;
  ++s->events;
  if (!s->tracked->empty() && !is_tensor(obj) && !tracked(s, obj) && has_tracked(s, key)) {
    // A tracked key chooses an element: the choice must be the same again.
    ErrorGuard error;
    rely_on(s, key);
  }
  if (PyTuple_Check(obj) || is_leaf(obj) || !known_outside(s, obj)) return;
  ErrorGuard error;
  if (PyDict_Check(obj)) {
    // A subclass may insert what is missing: what is there is asked before.
    if (!PyDict_CheckExact(obj)) {
      ensure_pre(s, obj);
      if (plain_key(key)) {
        PyObject* now = PyDict_GetItemWithError(obj, key);
        if (now == nullptr) PyErr_Clear();
        read_dict(s, obj, key, now);
      }
    }
    return;
  }
  touch(s, obj, false);
}

PyObject* on_item_load(PyObject* obj, PyObject* key, PyObject* result) {
  Session* s = tls_session;
  if (result != nullptr && !is_tensor(obj) && (tracked(s, obj) || has_tracked(s, key)))
    return derive(s, "item", 0, obj, key, result);
  if (PyDict_Check(obj) && known_outside(s, obj)) {
    ErrorGuard error;
    PyObject* now = result;
    if (!PyDict_CheckExact(obj) && plain_key(key)) now = PyDict_GetItemWithError(obj, key);
    if (result != nullptr && PyDict_CheckExact(obj) && PyUnicode_CheckExact(key) && counter_read(s, obj, key, result))
      return take_replaced(s, result);
    read_dict(s, obj, key, now);
  }
  return result;
}

void on_item_store(PyObject* obj, PyObject* key, PyObject* value) {
  Session* s = tls_session;
  ++s->events;
  if (!s->tracked->empty() && !is_tensor(obj)) {
    ErrorGuard error;
    if (tracked(s, obj)) {
      PyObject* r = derive(s, "item_store", 0, obj, key, Py_NewRef(value ? value : g_absent));
      Py_XDECREF(r);
      return;
    }
    rely_on(s, key);
  }
  if (!known_outside(s, obj)) return;
  ErrorGuard error;
  if (PyDict_Check(obj)) {
    if (!plain_key(key)) touch(s, obj, false);
    dict_store(s, obj, key, value);
    return;
  }
  touch(s, obj, false);
}

void on_contains_pre(PyObject* c, PyObject* item) {
  Session* s = tls_session;
  ++s->events;
  if (!s->tracked->empty() && !is_tensor(c)) {
    ErrorGuard error;
    rely_on(s, item);
    // A dict is asked for its keys only, and storing a key relies on it already.
    if (!PyDict_Check(c)) rely_on(s, c);
  }
  if (is_leaf(c) || PyTuple_Check(c) || !known_outside(s, c)) return;
  ErrorGuard error;
  if (PyDict_Check(c) && plain_key(item)) return;
  touch(s, c, false);
}

void on_contains(PyObject* c, PyObject* item, int outcome) {
  Session* s = tls_session;
  (void)outcome;
  if (!PyDict_Check(c) || !known_outside(s, c) || !plain_key(item)) return;
  ErrorGuard error;
  read_dict(s, c, item, PyDict_GetItemWithError(c, item));
}

void on_touch(PyObject* obj, Touch how) {
  Session* s = tls_session;
  ++s->events;
  ErrorGuard error;
  if (how == Touch::kFormat && tracked(s, obj)) return;
  touch(s, obj, how == Touch::kCompare || how == Touch::kFormat);
}

void on_truth(PyObject* obj) {
  Session* s = tls_session;
  ++s->events;
  if (tracked(s, obj)) {
    ErrorGuard error;
    PyObject* r = ask(s, "truth", obj);
    Py_XDECREF(r);
    return;
  }
  if (is_leaf(obj)) return;
  ErrorGuard error;
  PyTypeObject* t = Py_TYPE(obj);
  if (is_heap(t) && !is_tensor(obj)) {
    static PyObject* names[2] = {PyUnicode_InternFromString("__bool__"), PyUnicode_InternFromString("__len__")};
    for (PyObject* n : names) read_type_attr(s, t, n, _PyType_Lookup(t, n));
  }
  touch(s, obj, false);
}

void on_binary_pre(int op, PyObject* a, PyObject* b) {
  Session* s = tls_session;
  ++s->events;
  (void)op;
  if ((is_leaf(a) || is_tensor(a)) && (is_leaf(b) || is_tensor(b))) return;
  ErrorGuard error;
  if (!tracked(s, a)) touch(s, a, false);
  if (!tracked(s, b)) touch(s, b, false);
}

PyObject* on_binary(int op, PyObject* a, PyObject* b, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || !(tracked(s, a) || tracked(s, b)) || is_tensor(a) || is_tensor(b)) return result;
  return derive(s, "binary", op, a, b, result);
}

void on_compare_pre(int op, PyObject* a, PyObject* b) {
  Session* s = tls_session;
  ++s->events;
  (void)op;
  if ((is_leaf(a) || is_tensor(a)) && (is_leaf(b) || is_tensor(b))) return;
  ErrorGuard error;
  if (!tracked(s, a)) touch(s, a, true);
  if (!tracked(s, b)) touch(s, b, true);
}

PyObject* on_compare(int op, PyObject* a, PyObject* b, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || !(tracked(s, a) || tracked(s, b)) || is_tensor(a) || is_tensor(b)) return result;
  return derive(s, "compare", op, a, b, result);
}

PyObject* on_unary(int op, PyObject* a, PyObject* result) {
  Session* s = tls_session;
  // The truth of a tracked value was checked when it was taken.
  if (result == nullptr || PyBool_Check(result) || !tracked(s, a)) return result;
  return derive(s, "unary", op, a, nullptr, result);
}

bool on_call_pre(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, PyObject** result) {
  Session* s = tls_session;
  ++s->events;
  if (PyFunction_Check(f) && g_leaf_code.empty()) return false;
  uint8_t leaf;
  PyObject* self = nullptr;
  bool use_handler = false;
  {
    ErrorGuard error;
    leaf = classify(s, f, nullptr);
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    self = bound_self(f);
    if (!s->tracked->empty() && leaf != kLeafFrame && leaf != kLeafPure && leaf != kLeafHandler) {
      bool any = self != nullptr && tracked(s, self);
      for (Py_ssize_t i = 0; i < npos + nkw && !any; ++i) any = has_tracked(s, args[i]);
      // What stores its arguments without looking at them keeps their identity, which is how they are known.
      if (any && leaf != kLeafBlind && leaf != kLeafDictSet && leaf != kLeafSetattr) use_handler = true;
    }
    // Normal form: first = receiver or first argument.
    PyObject* first = self ? self : (npos > 0 ? args[0] : nullptr);
    PyObject* const* rest = self ? args : args + 1;
    Py_ssize_t nrest = self ? npos : npos - 1;
    if (!use_handler) switch (leaf) {
      case kLeafFrame: {
        PyTypeObject* t = Py_TYPE(f);
        if (!PyFunction_Check(f) && !PyMethod_Check(f) && is_heap(t))
          read_type_attr(s, t, g_str_call, _PyType_Lookup(t, g_str_call));
        return false;
      }
      case kLeafPure:
        return false;
      case kLeafTouch:
        tls_c_call = !passes_on(f);
        [[fallthrough]];
      case kLeafTorch:
        if (self != nullptr) touch(s, self, true);
        for (Py_ssize_t i = 0; i < npos + nkw; ++i) touch(s, args[i], true);
        return false;
      case kLeafSetattr:
        if (first != nullptr && nrest == 2 && PyUnicode_Check(rest[0])) {
          PyObject* name = Py_NewRef(rest[0]);
          PyUnicode_InternInPlace(&name);
          attr_store(s, first, name, rest[1]);
          Py_DECREF(name);
        }
        return false;
      case kLeafDelattr:
        if (first != nullptr && nrest == 1 && PyUnicode_Check(rest[0])) {
          PyObject* name = Py_NewRef(rest[0]);
          PyUnicode_InternInPlace(&name);
          attr_store(s, first, name, nullptr);
          Py_DECREF(name);
        }
        return false;
      case kLeafDictGet:
        if (first != nullptr && PyDict_Check(first) && nrest >= 1 && !plain_key(rest[0])) touch(s, first, false);
        return false;
      case kLeafDictSet:
      case kLeafBlind:
        if (first != nullptr && known_outside(s, first) && is_container(first)) {
          // Only a list and a deque take new elements without looking at the old ones.
          if (PyDict_Check(first) && leaf == kLeafDictSet && nrest == 2 && plain_key(rest[0]))
            dict_store(s, first, rest[0], rest[1]);
          else if (PyList_Check(first) || is_deque(first))
            ensure_pre(s, first);
          else
            touch(s, first, false);
        }
        for (Py_ssize_t i = 0; i < nrest + nkw; ++i) touch(s, rest[i], false);
        return false;
      case kLeafGetattr:
        return false;
      default:
        break;
    }
  }
  // The handler performs the call itself, or leaves it to us by answering with the sentinel.
  PyObject* kwargs = nullptr;
  PyObject* tuple = make_args(args, npos, kwnames, &kwargs);
  if (tuple == nullptr) {
    ErrorGuard error;
    fail(s, "call");
    return false;
  }
  PyObject* r;
  {
    PauseGuard pause;
    r = PyObject_CallMethod(s->handler, use_handler ? "tracked_call" : "call", "OOO", f, tuple, kwargs);
  }
  Py_DECREF(tuple);
  Py_DECREF(kwargs);
  if (r == g_absent) {
    Py_DECREF(r);
    return false;
  }
  *result = r;
  return true;
}

PyObject* on_call(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, PyObject* result) {
  Session* s = tls_session;
  if (PyFunction_Check(f) || PyMethod_Check(f)) return result;
  ErrorGuard error;
  uint8_t leaf = classify(s, f, nullptr);
  if (leaf == kLeafFrame || leaf == kLeafPure) return result;
  if (leaf == kLeafGetattr || leaf == kLeafDictGet) {
    PyObject* self = bound_self(f);
    PyObject* first = self ? self : (npos > 0 ? args[0] : nullptr);
    PyObject* const* rest = self ? args : args + 1;
    Py_ssize_t nrest = self ? npos : npos - 1;
    if (first == nullptr || nrest < 1) return result;
    if (leaf == kLeafGetattr) {
      if (!PyUnicode_Check(rest[0])) return result;
      PyObject* name = Py_NewRef(rest[0]);
      PyUnicode_InternInPlace(&name);
      // What is told is the attribute itself: hasattr answers a bool, getattr may answer the default.
      PauseGuard pause;
      PyTypeObject* t = Py_TYPE(first);
      PyObject* v = nullptr;
      // A read through getattr() is not followed: what it gives has left this function already.
      bool generic = t->tp_getattro == PyObject_GenericGetAttr ||
                     (PyType_Check(first) && t->tp_getattro == PyType_Type.tp_getattro && !is_heap(t)) ||
                     (PyModule_Check(first) && t->tp_getattro == PyModule_Type.tp_getattro &&
                      PyDict_GetItemWithError(PyModule_GetDict(first), g_str_getattr) == nullptr);
      PyObject* descr = _PyType_Lookup(t, name);
      bool runs_code = descr != nullptr && Py_TYPE(descr)->tp_descr_get != nullptr &&
                       (Py_TYPE(descr) == &PyProperty_Type || is_heap(Py_TYPE(descr)));
      if (generic && !runs_code && !is_tensor(first)) {
        v = PyObject_GetAttr(first, name);
        if (v == nullptr) PyErr_Clear();
      } else {
        v = Py_NewRef(result);
      }
      attr_load(s, first, name, v);
      if (s->replaced != nullptr) {
        rely_on(s, s->replaced);
        Py_CLEAR(s->replaced);
      }
      Py_XDECREF(v);
      Py_DECREF(name);
    } else if (PyDict_Check(first) && known_outside(s, first) && plain_key(rest[0])) {
      read_dict(s, first, rest[0], PyDict_GetItemWithError(first, rest[0]));
    }
    return result;
  }
  if (leaf == kLeafHandler) return result;
  if (result != Py_None && has_tensor(result) && !(PyType_Check(f) && leaf == kLeafTouch && !is_tensor(result))) {
    PyObject* kwargs = nullptr;
    PyObject* tuple = make_args(args, npos, kwnames, &kwargs);
    PyObject* r = nullptr;
    if (tuple != nullptr) {
      PauseGuard pause;
      r = PyObject_CallMethod(s->handler, "c_result", "OOOO", f, tuple, kwargs, result);
    }
    Py_XDECREF(tuple);
    Py_XDECREF(kwargs);
    if (r == nullptr) fail(s, "c_result");
    Py_XDECREF(r);
  }
  return result;
}

void on_call_raised(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  Session* s = tls_session;
  (void)kwnames;
  if (PyFunction_Check(f) || PyMethod_Check(f)) return;
  ErrorGuard error;
  if (classify(s, f, nullptr) == kLeafGetattr && npos >= 2 && PyUnicode_Check(args[1])) {
    PyObject* name = Py_NewRef(args[1]);
    PyUnicode_InternInPlace(&name);
    attr_load(s, args[0], name, nullptr);
    Py_DECREF(name);
  }
}

void on_iter(PyObject* obj, PyObject* iterator) {
  (void)obj;
  (void)iterator;
}

PyObject* on_next(PyObject* iterator, PyObject* value) {
  (void)iterator;
  return value;
}

PyObject* on_format(PyObject* value, PyObject* spec, int conversion, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || s->tracked->empty()) return result;
  if (tracked(s, spec)) {
    ErrorGuard error;
    rely_on(s, spec);
  }
  return tracked(s, value) ? derive(s, "format", conversion, value, spec, result) : result;
}

PyObject* on_build_string(PyObject* const* parts, Py_ssize_t n, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || s->tracked->empty()) return result;
  bool any = false;
  for (Py_ssize_t i = 0; i < n; ++i) any = any || tracked(s, parts[i]);
  if (!any) return result;
  PyObject* tuple = PyTuple_New(n);
  if (tuple == nullptr) {
    fail(s, "build_string");
    return result;
  }
  for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(parts[i]));
  result = derive(s, "join", 0, tuple, nullptr, result);
  Py_DECREF(tuple);
  return result;
}

void on_make_function(PyObject* func) { tls_session->made->insert(func); }

void on_import(PyObject* module) {
  Session* s = tls_session;
  ErrorGuard error;
  if (!PyModule_Check(module)) {
    reach(s, module);
    return;
  }
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* name = PyModule_GetNameObject(module);
  if (name != nullptr && modules != nullptr && PyDict_GetItemWithError(modules, name) == module) {
    if (s->outside->emplace(modules, true).second) Py_INCREF(modules);
    read_dict(s, modules, name, module);
  }
  Py_XDECREF(name);
  PyErr_Clear();
}

// ---------------------------------------------------------------- the Python type

namespace {

PyTypeObject* g_session_type = nullptr;

// The guards own the sentinel and add it to the module after this part was initialised.
bool have_absent() {
  if (g_absent == nullptr) g_absent = PyObject_GetAttrString(g_module, "ABSENT");
  return g_absent != nullptr;
}

PyObject* session_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* handler;
  static const char* names[] = {"handler", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &handler)) return nullptr;
  if (!have_absent()) return nullptr;
  auto* s = reinterpret_cast<Session*>(type->tp_alloc(type, 0));
  if (s == nullptr) return nullptr;
  s->handler = Py_NewRef(handler);
  s->outside = new std::unordered_map<PyObject*, bool>();
  s->log = new std::vector<Event>();
  s->seen = new std::unordered_set<Triple, TripleHash>();
  s->containers = new std::unordered_map<PyObject*, Container>();
  s->cells = new std::unordered_map<PyObject*, PyObject*>();
  s->written_cells = new std::unordered_set<PyObject*>();
  s->counter_cells = new std::unordered_set<PyObject*>();
  s->made = new std::unordered_set<PyObject*>();
  s->tracked = new std::unordered_map<PyObject*, long>();
  s->outside->reserve(2048);
  s->seen->reserve(8192);
  s->log->reserve(8192);
  return reinterpret_cast<PyObject*>(s);
}

int session_traverse(Session* s, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(s));
  Py_VISIT(s->handler);
  Py_VISIT(s->failure);
  Py_VISIT(s->replaced);
  for (auto& [o, _] : *s->outside) Py_VISIT(o);
  for (auto& e : *s->log) {
    Py_VISIT(e.obj);
    Py_VISIT(e.key);
    Py_VISIT(e.value);
  }
  for (auto& [o, c] : *s->containers) Py_VISIT(c.pre);
  for (auto& [o, _] : *s->tracked) Py_VISIT(o);
  for (auto& [o, v] : *s->cells) {
    Py_VISIT(o);
    Py_VISIT(v);
  }
  return 0;
}

int session_clear(Session* s) {
  Py_CLEAR(s->handler);
  Py_CLEAR(s->failure);
  Py_CLEAR(s->replaced);
  // Dropping a reference can run code that looks at this session: empty the tables first.
  std::vector<PyObject*> drop;
  for (auto& [o, _] : *s->outside) drop.push_back(o);
  for (auto& e : *s->log) {
    drop.push_back(e.obj);
    drop.push_back(e.key);
    drop.push_back(e.value);
  }
  for (auto& [o, c] : *s->containers) drop.push_back(c.pre);
  for (auto& [o, _] : *s->tracked) drop.push_back(o);
  s->tracked->clear();
  for (auto& [o, v] : *s->cells) {
    drop.push_back(o);
    drop.push_back(v);
  }
  s->outside->clear();
  s->log->clear();
  s->containers->clear();
  s->cells->clear();
  s->seen->clear();
  s->written_cells->clear();
  s->counter_cells->clear();
  s->made->clear();
  for (PyObject* o : drop) Py_XDECREF(o);
  return 0;
}

void session_dealloc(Session* s) {
  PyObject_GC_UnTrack(s);
  session_clear(s);
  delete s->outside;
  delete s->log;
  delete s->seen;
  delete s->containers;
  delete s->cells;
  delete s->written_cells;
  delete s->counter_cells;
  delete s->made;
  delete s->tracked;
  PyTypeObject* t = Py_TYPE(s);
  t->tp_free(reinterpret_cast<PyObject*>(s));
  Py_DECREF(t);
}

// run(f, args, kwargs): calls f with this session active on this thread and the hook installed.
PyObject* session_run(Session* s, PyObject* args) {
  PyObject *f, *pos, *kw;
  if (!PyArg_ParseTuple(args, "OO!O!", &f, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return nullptr;
  if (tls_session != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "a capture is already running on this thread");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pos); ++i) reach(s, PyTuple_GET_ITEM(pos, i));
  PyObject *k, *v;
  Py_ssize_t p = 0;
  while (PyDict_Next(kw, &p, &k, &v)) reach(s, v);
  reach(s, f);
  if (hook_install() < 0) return nullptr;
  Py_INCREF(s);
  tls_session = s;
  int pause = tls_pause;
  tls_pause = 0;
  if (!PyFunction_Check(f) && !PyMethod_Check(f) && is_heap(Py_TYPE(f)))
    read_type_attr(s, Py_TYPE(f), g_str_call, _PyType_Lookup(Py_TYPE(f), g_str_call));
  // A collection would run finalizers and weak reference callbacks of objects that have nothing to do with this call, watched.
  int collecting = PyGC_Disable();
  PyObject* r = PyObject_Call(f, pos, kw);
  if (collecting) PyGC_Enable();
  tls_session = nullptr;
  tls_pause = pause;
  hook_remove();
  Py_DECREF(s);
  return r;
}

PyObject* session_log(Session* s, PyObject*) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(s->log->size()));
  if (list == nullptr) return nullptr;
  static PyObject* names[sizeof(kKindNames) / sizeof(kKindNames[0])];
  Py_ssize_t i = 0;
  for (auto& e : *s->log) {
    if (names[e.kind] == nullptr) names[e.kind] = PyUnicode_InternFromString(kKindNames[e.kind]);
    PyObject* t = PyTuple_Pack(4, names[e.kind], e.obj, e.key ? e.key : Py_None, e.value ? e.value : Py_None);
    if (t == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, i++, t);
  }
  return list;
}

PyObject* session_is_outside(Session* s, PyObject* o) { return PyBool_FromLong(outside_object(s, o)); }

PyObject* session_reach(Session* s, PyObject* o) {
  reach(s, o);
  Py_RETURN_NONE;
}

PyObject* session_touch(Session* s, PyObject* o) {
  touch(s, o, true);
  Py_RETURN_NONE;
}

PyObject* session_track(Session* s, PyObject* args) {
  PyObject* o;
  long var;
  if (!PyArg_ParseTuple(args, "Ol", &o, &var)) return nullptr;
  if (s->tracked->emplace(o, var).second) Py_INCREF(o);
  Py_RETURN_NONE;
}

PyObject* session_tracked(Session* s, PyObject* o) {
  auto it = s->tracked->find(o);
  if (it == s->tracked->end()) Py_RETURN_NONE;
  return PyLong_FromLong(it->second);
}

PyObject* session_made(Session* s, PyObject* o) { return PyBool_FromLong(s->made->count(o) != 0); }

// [(container, content before, read as a whole)] of the outside containers that were written or read as a whole.
PyObject* session_containers(Session* s, PyObject*) {
  PyObject* list = PyList_New(0);
  for (auto& [o, c] : *s->containers) {
    if (c.pre == nullptr) continue;
    PyObject* t = Py_BuildValue("(OOO)", o, c.pre, c.whole ? Py_True : Py_False);
    if (list == nullptr || t == nullptr || PyList_Append(list, t) < 0) {
      Py_XDECREF(t);
      Py_XDECREF(list);
      return nullptr;
    }
    Py_DECREF(t);
  }
  return list;
}

// [(cell, content before or ABSENT)] of the outside cells that were written.
PyObject* session_cells(Session* s, PyObject*) {
  PyObject* list = PyList_New(0);
  for (PyObject* cell : *s->written_cells) {
    PyObject* old = s->cells->at(cell);
    PyObject* t = PyTuple_Pack(2, cell, old ? old : g_absent);
    if (list == nullptr || t == nullptr || PyList_Append(list, t) < 0) {
      Py_XDECREF(t);
      Py_XDECREF(list);
      return nullptr;
    }
    Py_DECREF(t);
  }
  return list;
}

PyObject* session_attr_read(Session* s, PyObject* args) {
  PyObject *obj, *name, *value;
  if (!PyArg_ParseTuple(args, "OUO", &obj, &name, &value)) return nullptr;
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  attr_load(s, obj, name, value);
  Py_DECREF(name);
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* session_failure(Session* s, void*) { return Py_NewRef(s->failure ? s->failure : Py_None); }
PyObject* session_events(Session* s, void*) { return PyLong_FromUnsignedLongLong(s->events); }

PyMethodDef session_methods[] = {
    {"run", reinterpret_cast<PyCFunction>(session_run), METH_VARARGS, nullptr},
    {"log", reinterpret_cast<PyCFunction>(session_log), METH_NOARGS, nullptr},
    {"is_outside", reinterpret_cast<PyCFunction>(session_is_outside), METH_O, nullptr},
    {"reach", reinterpret_cast<PyCFunction>(session_reach), METH_O, nullptr},
    {"touch", reinterpret_cast<PyCFunction>(session_touch), METH_O, nullptr},
    {"track", reinterpret_cast<PyCFunction>(session_track), METH_VARARGS, nullptr},
    {"tracked", reinterpret_cast<PyCFunction>(session_tracked), METH_O, nullptr},
    {"made", reinterpret_cast<PyCFunction>(session_made), METH_O, nullptr},
    {"attr_read", reinterpret_cast<PyCFunction>(session_attr_read), METH_VARARGS, nullptr},
    {"containers", reinterpret_cast<PyCFunction>(session_containers), METH_NOARGS, nullptr},
    {"written_cells", reinterpret_cast<PyCFunction>(session_cells), METH_NOARGS, nullptr},
    {"clear", reinterpret_cast<PyCFunction>(+[](Session* s, PyObject*) -> PyObject* {
       session_clear(s);
       Py_RETURN_NONE;
     }), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef session_getset[] = {
    {"failure", reinterpret_cast<getter>(session_failure), nullptr, nullptr, nullptr},
    {"events", reinterpret_cast<getter>(session_events), nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot session_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(session_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(session_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(session_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(session_clear)},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_getset},
    {0, nullptr},
};
PyType_Spec session_spec = {"magpy._interp.Session", sizeof(Session), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, session_slots};

PyObject* py_pause(PyObject*, PyObject*) {
  ++tls_pause;
  Py_RETURN_NONE;
}
PyObject* py_resume(PyObject*, PyObject*) {
  --tls_pause;
  Py_RETURN_NONE;
}
// unpaused(f, args, kwargs): calls f with events on again, from within a handler.
PyObject* py_watched(PyObject*, PyObject* args) {
  PyObject *f, *pos, *kw;
  if (!PyArg_ParseTuple(args, "OO!O!", &f, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return nullptr;
  int pause = tls_pause;
  tls_pause = 0;
  PyObject* r = PyObject_Call(f, pos, kw);
  tls_pause = pause;
  return r;
}
PyObject* py_session_active(PyObject*, PyObject*) { return PyBool_FromLong(tls_session != nullptr); }
PyObject* py_set_types(PyObject*, PyObject* args) {
  PyObject *tensor, *deque;
  if (!PyArg_ParseTuple(args, "OO", &tensor, &deque)) return nullptr;
  Py_XDECREF(reinterpret_cast<PyObject*>(g_tensor_type));
  Py_XDECREF(reinterpret_cast<PyObject*>(g_deque_type));
  g_tensor_type = tensor == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor));
  g_deque_type = deque == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(Py_NewRef(deque));
  Py_RETURN_NONE;
}
PyObject* py_set_leaf_code(PyObject*, PyObject* args) {
  PyObject* code;
  int leaf;
  if (!PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &leaf)) return nullptr;
  if (leaf < 0) {
    if (g_leaf_code.erase(code)) Py_DECREF(code);
  } else if (g_leaf_code.emplace(code, static_cast<uint8_t>(leaf)).second) {
    Py_INCREF(code);
  } else {
    g_leaf_code[code] = static_cast<uint8_t>(leaf);
  }
  Py_RETURN_NONE;
}
// add_counters(code, names): names that the code both reads and stores.
PyObject* py_add_counters(PyObject*, PyObject* args) {
  PyObject *code, *names;
  if (!PyArg_ParseTuple(args, "O!O", &PyCode_Type, &code, &names)) return nullptr;
  PyObject* list = PySequence_List(names);
  if (list == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* name = Py_NewRef(PyList_GET_ITEM(list, i));
    if (PyUnicode_CheckExact(name)) {
      PyUnicode_InternInPlace(&name);
      auto* as_code = reinterpret_cast<PyCodeObject*>(code);
      if (g_counters.insert(counter_key(as_code, name)).second) {
        Py_INCREF(as_code->co_filename);
        Py_INCREF(name);
      }
    }
    Py_DECREF(name);
  }
  Py_DECREF(list);
  Py_RETURN_NONE;
}
PyObject* py_forget_leaves(PyObject*, PyObject*) {
  g_leaves.clear();
  Py_RETURN_NONE;
}
// fresh(v): an object equal to v that nothing else refers to, so that its identity says where it came from.  The interpreter
// shares small ints; the copy made here is not the shared one.
PyObject* py_fresh(PyObject*, PyObject* v) {
  if (PyFloat_CheckExact(v)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(v));
  if (PyComplex_CheckExact(v)) return PyComplex_FromCComplex(PyComplex_AsCComplex(v));
  if (PyLong_CheckExact(v)) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(v, &overflow);
    if (overflow != 0 || value >= (1ll << 29) || value <= -(1ll << 29)) {
      // Not a shared small int: arithmetic makes a new object.
      size_t bits = _PyLong_NumBits(v);
      std::vector<unsigned char> bytes(bits / 8 + 2);
#if PY_VERSION_HEX >= 0x030D0000
      if (_PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(v), bytes.data(), bytes.size(), 1, 1, 1) < 0) return nullptr;
#else
      if (_PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(v), bytes.data(), bytes.size(), 1, 1) < 0) return nullptr;
#endif
      return _PyLong_FromByteArray(bytes.data(), bytes.size(), 1, 1);
    }
    PyLongObject* copy = _PyLong_New(1);
    if (copy == nullptr) return nullptr;
    auto magnitude = static_cast<digit>(value < 0 ? -value : value);
#if PY_VERSION_HEX >= 0x030C0000
    copy->long_value.ob_digit[0] = magnitude;
    copy->long_value.lv_tag = value == 0 ? 1 : (static_cast<uintptr_t>(1) << 3) | (value < 0 ? 2 : 0);
#else
    copy->ob_digit[0] = magnitude;
    Py_SET_SIZE(copy, value == 0 ? 0 : (value < 0 ? -1 : 1));
#endif
    return reinterpret_cast<PyObject*>(copy);
  }
  if (PyUnicode_CheckExact(v) && PyUnicode_GET_LENGTH(v) > 1) {
    PyObject* copy = PyUnicode_New(PyUnicode_GET_LENGTH(v), PyUnicode_MAX_CHAR_VALUE(v));
    if (copy == nullptr || PyUnicode_CopyCharacters(copy, 0, v, 0, PyUnicode_GET_LENGTH(v)) < 0) return nullptr;
    return copy;
  }
  return Py_NewRef(v);
}

PyObject* py_type_lookup(PyObject*, PyObject* args) {
  PyObject *t, *name;
  if (!PyArg_ParseTuple(args, "O!U", &PyType_Type, &t, &name) || !have_absent()) return nullptr;
  PyObject* v = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(t), name);
  return Py_NewRef(v ? v : g_absent);
}

PyMethodDef functions[] = {
    {"pause", py_pause, METH_NOARGS, "Stops events on this thread until resume()."},
    {"resume", py_resume, METH_NOARGS, nullptr},
    {"watched", py_watched, METH_VARARGS, "watched(f, args, kwargs): calls f with events on."},
    {"session_active", py_session_active, METH_NOARGS, "Whether a capture runs on this thread."},
    {"set_types", py_set_types, METH_VARARGS, "set_types(Tensor, deque)."},
    {"set_leaf_code", py_set_leaf_code, METH_VARARGS, "set_leaf_code(code, verdict or -1)."},
    {"add_counters", py_add_counters, METH_VARARGS, "add_counters(code, names): names that the code both reads and stores."},
    {"forget_leaves", py_forget_leaves, METH_NOARGS, nullptr},
    {"fresh", py_fresh, METH_O, "An equal number or string that nothing else refers to."},
    {"type_lookup", py_type_lookup, METH_VARARGS, "The raw class attribute along the MRO, or ABSENT."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_session(PyObject* module) {
  g_str_dict = PyUnicode_InternFromString("__dict__");
  g_str_class = PyUnicode_InternFromString("__class__");
  g_str_getattr = PyUnicode_InternFromString("__getattr__");
  g_str_getattribute = PyUnicode_InternFromString("__getattribute__");
  g_str_call = PyUnicode_InternFromString("__call__");
  g_str_get = PyUnicode_InternFromString("__get__");
  g_str_set = PyUnicode_InternFromString("__set__");
  g_module = module;
  PyObject* wrapper = PyObject_GetAttrString(Py_None, "__str__");
  if (wrapper == nullptr) return -1;
  g_method_wrapper_type = Py_TYPE(wrapper);
  Py_INCREF(g_method_wrapper_type);
  Py_DECREF(wrapper);
  g_session_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&session_spec));
  if (g_session_type == nullptr || PyModule_AddType(module, g_session_type) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace magpy
