// Outside objects: how the session gets to know them, what was read of them, and what they were
// before the program wrote to them.
//
// Owns: the snapshots and the events that a read or a write becomes.  Does not own: which
// instruction reads what (session_events.cpp, session_calls.cpp) nor the session's life
// (session.cpp).  Called by those.
//
// An object is outside when it existed before the call and the program reached it: roots, and
// everything read from an outside object that the program itself did not put there.  Outside
// objects are held, so an address met during the run never means two things.  Values made by the
// program are never held.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <vector>

#include "callers.h"
#include "classes.h"
#include "dispatch.h"
#include "frame_eval.h"
#include "leaf.h"
#include "looks.h"
#include "session_impl.h"
#include "tables.h"

namespace magpy {

bool plain_key(PyObject* k) {
  if (PyTuple_CheckExact(k)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); ++i)
      if (!plain_key(PyTuple_GET_ITEM(k, i))) return false;
    return true;
  }
  if (PySlice_Check(k)) return false;  // up to 3.11 it has no hash
  return is_leaf(k) || PyType_Check(k) || PyFunction_Check(k);
}

bool known_key(Session* s, PyObject* dict, PyObject* key) {
  if (plain_key(key)) return true;
  return PyDict_Check(dict) && by_identity(key) && outside_object(s, key) &&
         dict_item(dict, key) != nullptr;
}

uintptr_t key_number(PyObject* key) {
  if (key == nullptr) return 0;
  if (PyTuple_CheckExact(key)) {
    uintptr_t number = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      number = number * 1000003u ^ key_number(PyTuple_GET_ITEM(key, i));
    return number;
  }
  // Two keys that have one number are two places that vary, which costs no more than a number that
  // is an input.
  if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBool_Check(key) ||
      PyFloat_CheckExact(key))
    return static_cast<uintptr_t>(PyObject_Hash(key));
  return reinterpret_cast<uintptr_t>(key);
}

void fail(Session* s, const char* where) {
  // An exception may be set: it is the reason.
  const Ref reason = take_exception();
  if (s->failure) return;
  s->failure = Ref::steal(Py_BuildValue("(sO)", where, reason ? reason.get() : Py_None));
  if (!s->failure) PyErr_Clear();
}

void not_there(Session* s, const char* where) {
  const bool known = PyErr_ExceptionMatches(PyExc_Exception) &&
                     !PyErr_ExceptionMatches(PyExc_MemoryError) &&
                     !PyErr_ExceptionMatches(PyExc_RecursionError);
  if (PyErr_Occurred() && !known) return fail(s, where);
  PyErr_Clear();
}

void emit(Session* s, Kind kind, PyObject* obj, PyObject* key, PyObject* value) {
  const bool reads = kind != kObject && kind != kType;  // nothing of what is in it
  if (reads && !s->differing.empty() &&
      (s->differing.count(place_of_number(obj, nullptr)) != 0 ||
       s->differing.count(place_of_number(obj, key)) != 0)) {
    ErrorGuard error;
    ask(s, "differs", obj, key ? key : Py_None);
  }
  s->log.push_back(
      Event{Ref::borrow(obj), Ref::borrow(key), Ref::borrow(value ? value : g_absent), kind});
}

// Makes obj an outside object.  Immutable containers are looked through at once: their content
// cannot change. Whether it holds objects that C code hands on, calls or compares, and that no
// attribute read by Python need tell of.
static bool holds_unseen(PyObject* v) {
  if (PyWeakref_CheckRef(v) || PySlice_Check(v)) return true;
  PyTypeObject* t = Py_TYPE(v);
  if (PyModule_Check(v) || PyType_Check(v) || PyFunction_Check(v) || is_container(v)) return false;
  const char* name = c_base(t)->tp_name;
  for (const char* known : {"operator.methodcaller", "operator.itemgetter", "datetime.datetime",
                            "datetime.time", "re.Match", "types.GenericAlias", "types.UnionType"})
    if (strcmp(name, known) == 0) return true;
  return false;
}

// An object of numpy's class itself.
static bool is_numpy_array(PyObject* v) {
  static PyTypeObject* known = nullptr;
  PyTypeObject* t = Py_TYPE(v);
  if (known == nullptr && strcmp(t->tp_name, "numpy.ndarray") == 0 && !is_heap(t)) known = t;
  return t == known;
}

void reach(Session* s, PyObject* v, int depth) {
  if (v == nullptr || is_leaf(v)) return;
  if (!s->outside.add(v)) return;
  if (PyExceptionInstance_Check(v)) {
    // To raise it again changes these.
    auto* error = reinterpret_cast<PyBaseExceptionObject*>(v);
    PyObject* none = Py_None;
    const Ref before = Ref::steal(PyTuple_Pack(2, error->traceback ? error->traceback : none,
                                               error->context ? error->context : none));
    if (!before) fail(s, "exception");
    emit(s, kObject, v, nullptr, before.get());
  } else {
    emit(s, kObject, v, nullptr, nullptr);
  }
  if (depth > 50) return;
  if (PyTuple_Check(v)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); ++i)
      reach(s, PyTuple_GET_ITEM(v, i), depth + 1);
  } else if (PyMethod_Check(v)) {
    reach(s, PyMethod_GET_SELF(v), depth + 1);
    reach(s, PyMethod_GET_FUNCTION(v), depth + 1);
  } else if (PyObject* self = bound_self(v)) {
    reach(s, self, depth + 1);
  } else if (PyObject* behind = compiled_behind(v)) {
    // During a capture it is what it was made from.
    reach(s, behind, depth + 1);
  } else if (PyFrozenSet_Check(v)) {
    const Ref held = elements(v);
    if (!held) return fail(s, "frozenset");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held.get()); ++i)
      reach(s, PyTuple_GET_ITEM(held.get(), i), depth + 1);
  } else if (is_numpy_array(v)) {
    ask(s, "array_reached", v);
  } else if (holds_unseen(v)) {
    ask(s, "held", v);
  }
}

// None with an exception set.
static Ref shallow_copy(PyObject* o) {
  if (PyDict_Check(o)) {
    // It copies the table with its hashes, where storing would compare keys, by code of the
    // program's perhaps.  Where a subclass says how to go through it, it asks that.
    if (Py_TYPE(o)->tp_iter == PyDict_Type.tp_iter) return Ref::steal(PyDict_Copy(o));
    Ref copy = Ref::steal(PyDict_New());
    if (!copy) return copy;
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    // OrderedDict keeps an order of its own that raw iteration does not show.
    if (!PyDict_CheckExact(o) && PyObject_TypeCheck(o, &PyODict_Type)) {
      const Ref items = Ref::steal(
          PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "items", "O", o));
      const Ref list = Ref::steal(items ? PySequence_List(items.get()) : nullptr);
      if (!list) return Ref();
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
        PyObject* kv = PyList_GET_ITEM(list.get(), i);
        if (PyDict_SetItem(copy.get(), PyTuple_GET_ITEM(kv, 0), PyTuple_GET_ITEM(kv, 1)) < 0)
          return Ref();
      }
      return copy;
    }
    while (PyDict_Next(o, &pos, &k, &v))
      if (PyDict_SetItem(copy.get(), k, v) < 0) return Ref();
    return copy;
  }
  if (PyList_Check(o)) return Ref::steal(PyList_AsTuple(o));
  if (PyAnySet_Check(o)) return Ref::steal(PyFrozenSet_New(o));
  if (PyByteArray_Check(o))
    return Ref::steal(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(o), PyByteArray_GET_SIZE(o)));
  if (is_deque(o)) return elements(o);
  return Ref();
}

Container& container(Session* s, PyObject* o) { return s->containers[o]; }

bool ensure_pre(Session* s, PyObject* o) {
  leave_table(s, o);
  if (container(s, o).pre) return true;
  Ref copy;
  {
    PauseGuard pause;
    copy = shallow_copy(o);
  }
  if (!copy) {
    fail(s, "snapshot");
    return false;
  }
  container(s, o).pre = std::move(copy);
  if (PyAnySet_Check(o)) {
    container(s, o).order = set_elements(o);
    if (!container(s, o).order) {
      fail(s, "snapshot");
      return false;
    }
  }
  return true;
}

static void reach_content(Session* s, PyObject* pre) {
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
    const Ref it = Ref::steal(PyObject_GetIter(pre));
    while (const Ref x = Ref::steal(it ? PyIter_Next(it.get()) : nullptr)) reach(s, x.get());
    if (PyErr_Occurred()) fail(s, "snapshot");
  }
}

Ref ask_all(Session* s, const char* method, PyObject* const* args, size_t n) {
  constexpr size_t kMost = 5;
  PyObject* all[kMost + 1] = {s->handler.get()};
  std::copy_n(args, std::min(n, kMost), all + 1);
  PauseGuard pause;
  const Ref name = Ref::steal(PyUnicode_InternFromString(method));
  Ref answer = Ref::steal(
      name && s->handler ? PyObject_VectorcallMethod(name.get(), all, n + 1, nullptr) : nullptr);
  if (!answer) fail(s, method);
  return answer;
}

// Whether a tracked value is in an argument, where a C function would find it.
PyObject* bound_self(PyObject* f) {
  if (PyCFunction_Check(f)) {
    PyObject* self = PyCFunction_GET_SELF(f);
    return self != nullptr && !PyModule_Check(self) ? self : nullptr;
  }
  if (Py_TYPE(f) == g_method_wrapper_type) return reinterpret_cast<WrapperObject*>(f)->self;
  return nullptr;
}

struct PartialObject {  // the beginning of functools.partial (Modules/_functoolsmodule.c), the same
                        // on 3.11 to 3.13
  PyObject_HEAD PyObject* fn;
  PyObject* args;
  PyObject* kw;
};

Bound bound_parts(PyObject* f) {
  if (PyMethod_Check(f)) return {{PyMethod_GET_SELF(f), PyMethod_GET_FUNCTION(f), nullptr}};
  if (g_partial_type != nullptr && PyObject_TypeCheck(f, g_partial_type)) {
    auto* partial = reinterpret_cast<PartialObject*>(f);
    return {{partial->fn, partial->args, partial->kw}};
  }
  if (Py_IS_TYPE(f, &Compiled_Type)) return {{compiled_behind(f), nullptr, nullptr}};
  return {{bound_self(f), nullptr, nullptr}};
}

int collect_referent(PyObject* referent, void* todo) {
  static_cast<std::vector<PyObject*>*>(todo)->push_back(referent);
  return 0;
}

// A view of a dict, an OrderedDict's among them.
static bool is_view(PyObject* v) {
  return PyDictViewSet_Check(v) || PyObject_TypeCheck(v, &PyDictValues_Type);
}

// An iterator written in C.  A generator is the program's, and gives what its frame gives.
static bool is_c_iterator(PyObject* v) {
  PyTypeObject* t = Py_TYPE(v);
  return t->tp_iternext != nullptr && c_base(t) == t && !PyGen_CheckExact(v) &&
         !PyCoro_CheckExact(v) && !PyAsyncGen_CheckExact(v);
}

// What several copies of one iterator share (itertools.tee), and what stands before a dict.
static bool stands_before(PyObject* v) {
  return Py_IS_TYPE(v, &PyDictProxy_Type) ||
         strcmp(Py_TYPE(v)->tp_name, "itertools._tee_dataobject") == 0;
}

bool passes_elements_on(Session* s, PyObject* v) {
  // An array's iterator may be tracked itself.
  if (tracked(s, v)) return false;
  return PyTuple_Check(v) || PyList_Check(v) || PyDict_Check(v) || is_deque(v) || is_view(v) ||
         is_c_iterator(v);
}

bool find_tracked(Session* s, PyObject* root, std::vector<PyObject*>* out) {
  std::unordered_set<PyObject*> seen;
  std::vector<PyObject*> todo{root};
  bool found = false;
  auto add = [&todo](PyObject* v) {
    if (v != nullptr) todo.push_back(v);
  };
  while (!todo.empty()) {
    PyObject* v = todo.back();
    todo.pop_back();
    if (tracked(s, v)) {
      if (out == nullptr) return true;
      out->push_back(v);
      found = true;
      continue;
    }
    if (PySlice_Check(v)) {
      auto* slice = reinterpret_cast<PySliceObject*>(v);
      for (PyObject* x : {slice->start, slice->stop, slice->step}) add(x);
      continue;
    }
    if (is_leaf(v) || is_tensor(v) || PyType_Check(v) || PyModule_Check(v) || PyFunction_Check(v))
      continue;
    const bool before = is_view(v) || is_c_iterator(v) || stands_before(v);
    const bool holds = before || PyTuple_Check(v) || is_container(v) || PyFrozenSet_Check(v) ||
                       (g_namespace_type != nullptr && PyObject_TypeCheck(v, g_namespace_type)) ||
                       PyMethod_Check(v) || PyCFunction_Check(v) ||
                       Py_TYPE(v) == g_method_wrapper_type || PyExceptionInstance_Check(v) ||
                       (g_partial_type != nullptr && PyObject_TypeCheck(v, g_partial_type));
    if (!holds || !seen.insert(v).second) continue;
    // Outside containers that the run has not written to hold such values only where these stand
    // for the numbers that were there.
    auto it = s->containers.find(v);
    const bool untouched =
        known_outside(s, v) && is_container(v) && (it == s->containers.end() || !it->second.pre);
    if (untouched && s->numbered.empty()) continue;
    if (PyTuple_Check(v) || PyList_Check(v)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i)
        add(PySequence_Fast_GET_ITEM(v, i));
    } else if (PyDict_Check(v)) {
      PyObject *k, *x;
      Py_ssize_t pos = 0;
      while (PyDict_Next(v, &pos, &k, &x)) {
        add(x);
        if (PyTuple_Check(k)) add(k);
      }
    } else if (PyAnySet_Check(v) || is_deque(v)) {
      // Iterating these asks nothing of their elements, which they keep alive.
      PauseGuard pause;
      const Ref items = elements(v);
      if (!items) fail(s, "elements");
      for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(items.get()); ++i)
        add(PyTuple_GET_ITEM(items.get(), i));
    } else if (g_namespace_type != nullptr && PyObject_TypeCheck(v, g_namespace_type)) {
      const Ref d = Ref::steal(PyObject_GenericGetDict(v, nullptr));  // the namespace holds it
      if (!d) fail(s, "namespace");
      add(d.get());
    } else if (PyExceptionInstance_Check(v)) {
      add(reinterpret_cast<PyBaseExceptionObject*>(v)->args);
    } else if (before) {
      // An iterator or a view holds what it will give, or something that does.
      if (Py_TYPE(v)->tp_traverse != nullptr) Py_TYPE(v)->tp_traverse(v, collect_referent, &todo);
    } else {
      for (PyObject* x : bound_parts(v).parts) add(x);
    }
  }
  return found;
}

void rely_on(Session* s, PyObject* o) {
  std::vector<PyObject*> found;
  if (s->tracked.empty() || !find_tracked(s, o, &found)) return;
  for (PyObject* v : found) ask(s, "rely_on", v);
}

// A value came of an operation with tracked operands.  Steals result.
PyObject* derive(Session* s, const char* method, int op, PyObject* a, PyObject* b,
                 PyObject* result) {
  PauseGuard pause;
  ErrorGuard error;
  const Ref number = Ref::steal(PyLong_FromLong(op));
  if (!number) {
    fail(s, method);
    return result;
  }
  Ref derived = ask(s, method, number.get(), a, b ? b : Py_None, result);
  if (!derived) return result;
  Py_DECREF(result);
  return derived.release();
}

namespace {

// How far a look goes: 0 for an object itself, 1 for its elements, too, and so on.
constexpr int kAll = std::numeric_limits<int>::max();

int below(int depth) { return depth == kAll ? kAll : depth - 1; }

// The objects that one look has been through, and how far it went from there: structures share and
// may contain themselves.
using Seen = std::unordered_map<PyObject*, int>;

bool goes_into(Seen& seen, PyObject* o, int depth) {
  if (depth <= 0) return false;
  int& before = seen[o];
  if (depth <= before) return false;
  before = depth;
  return true;
}

void touch_into(Session* s, PyObject* o, int depth, Seen& seen);

// What a partial holds is read.
void read_partial(Session* s, PyObject* partial) {
  static PyObject* const names[] = {PyUnicode_InternFromString("func"),
                                    PyUnicode_InternFromString("args"),
                                    PyUnicode_InternFromString("keywords")};
  const Bound held = bound_parts(partial);
  for (size_t i = 0; i < std::size(names); ++i) {
    if (held.parts[i] == nullptr || !first_time(s, kAttrC, partial, names[i])) continue;
    emit(s, kAttrC, partial, names[i], held.parts[i]);
    reach(s, held.parts[i]);
  }
  if (first_time(s, kSnap, partial, nullptr)) ask(s, "touch", partial, Py_False);
}

// What an exception was made with is read.
void read_exception(Session* s, PyObject* error, Seen& seen) {
  static PyObject* const name = PyUnicode_InternFromString("args");
  const Ref args = Ref::borrow(reinterpret_cast<PyBaseExceptionObject*>(error)->args);
  if (known_outside(s, error) && !written(s, error, name) && first_time(s, kAttrC, error, name)) {
    emit(s, kAttrC, error, name, args.get());
    reach(s, args.get());
  }
  touch_into(s, args.get(), kAll, seen);
}

// Whether what this gives are tuples that it makes of what it goes over.
bool pairs_up(PyObject* o) {
  static PyTypeObject* const entries = [] {
    const Ref dict = Ref::steal(PyDict_New());
    const Ref items =
        Ref::steal(dict ? PyObject_CallMethod(dict.get(), "items", nullptr) : nullptr);
    const Ref found = Ref::steal(items ? PyObject_GetIter(items.get()) : nullptr);
    if (!found) PyErr_Clear();
    return found ? Py_TYPE(found.get()) : nullptr;
  }();
  return PyDictItems_Check(o) || Py_IS_TYPE(o, &PyZip_Type) || Py_IS_TYPE(o, &PyEnum_Type) ||
         Py_IS_TYPE(o, entries);
}

// What the elements of an object hold is read as far as `depth` says.
void touch_content(Session* s, PyObject* o, int depth, Seen& seen) {
  if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i)
      touch_into(s, PySequence_Fast_GET_ITEM(o, i), depth, seen);
  } else if (PyDict_Check(o)) {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(o, &pos, &k, &v)) touch_into(s, v, depth, seen);
  } else if (is_deque(o)) {
    const Ref items = elements(o);
    if (!items) return fail(s, "elements");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i)
      touch_into(s, PyTuple_GET_ITEM(items.get(), i), depth, seen);
  } else if (!is_container(o)) {
    const bool outside = known_outside(s, o);
    for (PyObject* part : bound_parts(o).parts) {
      if (part == nullptr) continue;
      if (outside) reach(s, part);
      touch_into(s, part, depth, seen);
    }
  }
}

// What the program made of C that stands for what other objects hold: an iterator, a view, a
// namespace.
bool stands_for_others(PyObject* o) {
  return is_view(o) || is_c_iterator(o) || stands_before(o) ||
         (g_namespace_type != nullptr && PyObject_TypeCheck(o, g_namespace_type));
}

void touch_into(Session* s, PyObject* o, int depth, Seen& seen) {
  if (is_leaf(o) || PyModule_Check(o)) return;
  if (PyFunction_Check(o)) {
    read_function_name(s, o);
    return;
  }
  read_protocols(s, Py_TYPE(o));
  if (is_tensor(o)) return;
  if (PyType_Check(o)) {
    // It may make objects of the class.
    read_protocols(s, reinterpret_cast<PyTypeObject*>(o));
    read_name(s, reinterpret_cast<PyTypeObject*>(o));
    return;
  }
  const bool outside = known_outside(s, o);
  if (outside) {
    read_type(s, o);
    read_mapping_names(s, o);
  }
  if (PyObject* factory = factory_of(o); factory != nullptr && seen.count(factory) == 0) {
    if (outside) reach(s, factory);
    touch_into(s, factory, kAll, seen);
    factory_used(s, factory);
  }
  if (outside && is_container(o)) {
    leave_table(s, o);
    if (!container(s, o).whole) {
      if (!ensure_pre(s, o)) return;
      Container& c = container(s, o);
      c.whole = true;
      const Ref pre = Ref::borrow(c.pre.get());
      emit(s, kSnap, o, c.order.get(), pre.get());
      reach_content(s, pre.get());
    }
    if (goes_into(seen, o, depth)) {
      const Ref pre = Ref::borrow(container(s, o).pre.get());
      if (pre) touch_content(s, pre.get(), below(depth), seen);
      // What the run has put there may be looked into too.
      touch_content(s, o, below(depth), seen);
    }
    return;
  }
  if (outside && g_partial_type != nullptr && PyObject_TypeCheck(o, g_partial_type))
    read_partial(s, o);
  if (PyExceptionInstance_Check(o) && goes_into(seen, o, depth)) read_exception(s, o, seen);
  // What the program made, and what cannot change, may hold outside containers, which a C function
  // then looks into.
  if (PyTuple_Check(o) || is_container(o) || bound_parts(o).parts[0] != nullptr) {
    if (goes_into(seen, o, depth)) touch_content(s, o, below(depth), seen);
    return;
  }
  if (!outside) {
    if (!stands_for_others(o) || tracked(s, o)) return;
    const int within = pairs_up(o) ? below(depth) : depth;
    if (!goes_into(seen, o, within)) return;
    std::vector<PyObject*> referents;
    if (Py_TYPE(o)->tp_traverse != nullptr)
      Py_TYPE(o)->tp_traverse(o, collect_referent, &referents);
    std::vector<Ref> held;  // the handler is asked on the way, and what it runs may let go of them
    for (PyObject* v : referents) held.push_back(Ref::borrow(v));
    for (const Ref& v : held) touch_into(s, v.get(), within, seen);
    return;
  }
  if (PyExceptionInstance_Check(o)) {
    // Its methods change what its dict holds (add_note).
    PyObject* d = instance_dict(s, o);
    if (d != nullptr) touch_into(s, d, depth, seen);
  }
  if (first_time(s, kSnap, o, nullptr)) ask(s, "touch", o, depth > 0 ? Py_True : Py_False);
}

}  // namespace

void touch(Session* s, PyObject* o, bool deep) {
  if (!s->tracked.empty()) rely_on(s, o);
  touch_kept(s, o, deep);
}

void touch_kept(Session* s, PyObject* o, bool deep) {
  Seen seen;
  touch_into(s, o, deep ? kAll : 0, seen);
}

void touch_pairs(Session* s, PyObject* o) {
  if (!s->tracked.empty()) rely_on(s, o);
  Seen seen;
  touch_into(s, o, PyDict_Check(o) ? 0 : 1, seen);
}

bool read_keys(Session* s, PyObject* dict) {
  if (!PyDict_CheckExact(dict) || !known_outside(s, dict)) return false;
  leave_table(s, dict);
  const Container& c = container(s, dict);
  if (c.whole) return true;
  PyObject *key, *value, *before = c.pre ? c.pre.get() : dict;
  Py_ssize_t pos = 0;
  while (PyDict_Next(before, &pos, &key, &value))
    if (!is_leaf(key)) return false;
  if (!first_time(s, kKeys, dict, nullptr)) return true;
  const Ref keys = Ref::steal(PySequence_Tuple(before));
  if (keys)
    emit(s, kKeys, dict, nullptr, keys.get());
  else
    fail(s, "keys");
  return true;
}

bool read_length(Session* s, PyObject* list) {
  if (!PyList_CheckExact(list) || !known_outside(s, list)) return false;
  const auto known = s->containers.find(list);
  if (known != s->containers.end() && known->second.whole) return true;
  if (known != s->containers.end() && known->second.pre)
    // Where it was told already, what there is now follows.  What the run has changed else is
    // compared: it has another length in the next call's beginning.
    return seen(s, kListLength, list, nullptr) && !known->second.unlogged && !others_ran(s);
  if (!first_time(s, kListLength, list, nullptr)) return true;
  const Ref length = Ref::steal(PyLong_FromSsize_t(PyList_GET_SIZE(list)));
  if (length)
    emit(s, kListLength, list, nullptr, length.get());
  else
    fail(s, "length");
  return true;
}

void read_frame(Session* s, PyObject* frame) {
  if (is_caller(frame)) ask(s, "caller_read", frame);
}

bool others_ran(Session* s) { return thread_switches() != s->switches; }

void note_store(Session* s, PyObject* holder, PyObject* key, PyObject* value) {
  if (key != nullptr && !known_key(s, holder, key)) {
    container(s, holder).unlogged = true;
    return;
  }
  PyObject* shown = value != nullptr && is_leaf(value) ? value : nullptr;
  s->stores.push_back(Store{holder, Ref::borrow(key), Ref::borrow(shown), value});
}

void refuse_race(Session* s, PyObject* holder) {
  ErrorGuard error;
  ask(s, "raced", holder);
}

bool stored_by_run(Session* s, PyObject* holder, PyObject* key, PyObject* now) {
  const uintptr_t number = key_number(key);
  for (auto store = s->stores.rbegin(); store != s->stores.rend(); ++store)
    if (store->holder == holder && store->key && key_number(store->key.get()) == number)
      return store->address == now;
  return false;
}

// A key of an outside dict was read.  What counts is the value from before the program's own
// writes.
void read_dict(Session* s, PyObject* dict, PyObject* key, PyObject* now) {
  leave_table(s, dict);
  if (!can_search(s, dict, key)) {
    touch(s, dict, false);
    return;
  }
  PyObject* before = now;
  auto it = s->containers.find(dict);
  if (it != s->containers.end() && it->second.pre) {
    before = dict_item(it->second.pre.get(), key);
    if (before == nullptr && PyErr_Occurred()) {
      fail(s, "dict read");
      return;
    }
    if (now != before && !it->second.unlogged && others_ran(s) &&
        !stored_by_run(s, dict, key, now))
      return refuse_race(s, dict);
    // The program put this value there itself: nothing from outside was read.
    if (now != before &&
        !(now != nullptr && before != nullptr && is_leaf(now) && Py_TYPE(now) == Py_TYPE(before)))
      return;
  }
  if (!first_time(s, kDictKey, dict, key)) return;
  emit(s, kDictKey, dict, key, before);
  reach(s, before);
}

Triple counter_key(PyCodeObject* code, PyObject* name) {
  return Triple{reinterpret_cast<uintptr_t>(code->co_filename) ^
                    (static_cast<uintptr_t>(code->co_firstlineno) << 40),
                reinterpret_cast<uintptr_t>(name), 0};
}

// Whether the code that runs now, or its original, is one that stores this name too.
bool counts_here(PyObject* name) {
  if (g_counters.empty() || !PyUnicode_CheckExact(name)) return false;
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  const Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  return g_counters.count(counter_key(reinterpret_cast<PyCodeObject*>(code.get()), name)) != 0;
}

// Arithmetic with larger integers can raise where that with others does not.
bool may_count(PyObject* value) {
  return value != nullptr && (PyFloat_CheckExact(value) || is_small_int(value));
}

bool may_vary(Session* s, PyObject* holder, PyObject* key, PyObject* value) {
  return !s->varying.empty() && value != nullptr &&
         (may_count(value) || (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) > 0) ||
          (PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) > 1)) &&
         s->varying.count(place_of_number(holder, key)) != 0;
}

// A number that the program reads and will store again, a counter, or one that others store: it is
// another number in every call, so it becomes an input that is followed by its identity, not a
// constant.  The equal number put in its place has an identity of its own.
bool counter_read(Session* s, PyObject* dict, PyObject* name, PyObject* value) {
  if (!plain_key(name)) return false;
  if (!may_vary(s, dict, name, value) && (!may_count(value) || !counts_here(name))) return false;
  if (s->tracked.has(value)) return true;
  leave_table(s, dict);
  auto it = s->containers.find(dict);
  PyObject* pre = it != s->containers.end() ? it->second.pre.get() : nullptr;
  // What the run has looked at as a whole is compared, and what it has stored here is its own.
  if (pre != nullptr &&
      (it->second.whole || !PyDict_Check(pre) || PyDict_GetItemWithError(pre, name) != value))
    return false;
  if (!first_time(s, kDictKey, dict, name)) return false;
  Ref fresh = ask(s, "counter", dict, name, value);
  if (fresh && PyDict_GetItemWithError(dict, name) != value) {
    refuse_race(s, dict);  // while the handler ran
    return true;
  }
  if (!fresh || PyDict_SetItem(dict, name, fresh.get()) < 0 ||
      (pre != nullptr && PyDict_SetItem(pre, name, fresh.get()) < 0)) {
    fail(s, "counter");
    return true;
  }
  s->numbered.insert(dict);
  s->replaced = std::move(fresh);
  return true;
}

PyObject* take_replaced(Session* s, PyObject* value) {
  if (!s->replaced) return value;
  Py_XDECREF(value);
  return s->replaced.release();
}

// Whether nothing would be seen to change if one of them took the other's place.
static bool alike(PyObject* a, PyObject* b) {
  return a == b || (is_leaf(a) && is_leaf(b) && leaf_equal(a, b));
}

static bool is_number(PyObject* v) {
  return PyLong_Check(v) || PyFloat_Check(v) || PyComplex_Check(v);
}

// Whether a dict has a number as a key, and not an equal one of another type (True and 1), which
// stays when the other is stored.
static bool holds_key(PyObject* d, PyObject* key) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (PyDict_Next(d, &pos, &k, &v))
    if (Py_TYPE(k) == Py_TYPE(key) && leaf_equal(k, key)) return true;
  return false;
}

// Something else is put at the name of an operation: from then on torch would tell the run of what
// stands there, not of what is called.
void refuse_replaced(Session* s, PyObject* home, PyObject* name) {
  if (g_homes.count(home) != 0) ask(s, "name_replaced", name);
}

// A key of an outside dict is stored or deleted.  A store of what is there already changes nothing
// and would not be redone: that it is there must hold again.
void dict_store(Session* s, PyObject* d, PyObject* key, PyObject* value, bool stored) {
  leave_table(s, d);
  if (runs_code(key) || compares_by_code(s, d)) {
    // To ask what is there would run the program's code once more: all of it is compared.
    touch(s, d, false);
    container(s, d).unlogged = true;
    return;
  }
  PyObject* now = dict_item(d, key);
  if (now == nullptr && PyErr_Occurred()) {
    PyErr_Clear();  // no key can be this: the program gets the same error
    return;
  }
  if (now != nullptr && now != value) refuse_replaced(s, d, key);
  if (stored) note_store(s, d, key, value);
  // Stored again later, it comes last among the keys, whatever others there are.
  if (value == nullptr && now != nullptr && first_time(s, kDictDel, d, key))
    emit(s, kDictDel, d, key, now);
  const bool varies = value != nullptr && tracked(s, value);  // and is stored by every call
  const bool same = now != nullptr && value != nullptr && !varies && alike(now, value);
  if (value == nullptr || same || (now != nullptr && is_number(key) && !holds_key(d, key)))
    read_dict(s, d, key, now);
  // Likewise when the run has changed it and now puts it back, or takes it away: only what is there
  // can be deleted.
  auto it = s->containers.find(d);
  if (it != s->containers.end() && it->second.pre) {
    PyObject* before = dict_item(it->second.pre.get(), key);
    if (before == nullptr) PyErr_Clear();
    const bool back = before == value || value == nullptr ||
                      (before != nullptr && !varies && alike(before, value));
    if (back && first_time(s, kDictKey, d, key)) {
      emit(s, kDictKey, d, key, before);
      reach(s, before);
    }
    return;
  }
  ensure_pre(s, d);
}

}  // namespace magpy
