// The capture session: `_interp.Session` and the functions of the module that configure it.
//
// Owns: the life of a session, running a program under it, and what Python reads of it afterwards.
// Does not own: what is noted of outside objects (session_state.cpp), which events lead to that
// (session_events.cpp), nor the meaning of the log (magpy/guards analyses it after the run).
// Called by magpy/capture/session.py.

#include "callers.h"
#include "dispatch.h"
#include "figures.h"
#include "frame_eval.h"
#include "probes.h"
#include "session_impl.h"
#include "tables.h"

namespace magpy {

thread_local Session* tls_session = nullptr;
thread_local int tls_pause = 0;
thread_local bool tls_below = false;

namespace {

// Events from one question whether the run is given up to the next, and where the answer is: soon.
constexpr unsigned long long kEventsBetween = 1 << 12, kEventsSoon = 1 << 4;

PyTypeObject* g_session_type = nullptr;

// The guards own the sentinel and add it to the module after this part was initialised.
bool have_absent() {
  if (g_absent == nullptr) g_absent = PyObject_GetAttrString(g_module, "ABSENT");
  return g_absent != nullptr;
}

PyObject* session_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* handler;
  static const char* names[] = {"handler", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &handler))
    return nullptr;
  if (!have_absent()) return nullptr;
  auto* s = static_cast<Session*>(type->tp_alloc(type, 0));
  if (s == nullptr) return nullptr;
  new (static_cast<Held*>(s)) Held();
  s->handler = Ref::borrow(handler);
  s->outside.reserve(2048);
  s->seen.reserve(8192);
  s->log.reserve(8192);
  return s;
}

int session_traverse(Session* s, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(s));
  for (const Ref* ref : {&s->handler, &s->failure, &s->replaced}) Py_VISIT(ref->get());
  for (PyObject* o : s->outside) Py_VISIT(o);
  for (const Event& e : s->log)
    for (const Ref* ref : {&e.obj, &e.key, &e.value}) Py_VISIT(ref->get());
  for (const auto& [o, c] : s->containers)
    for (const Ref* ref : {&c.pre, &c.order}) Py_VISIT(ref->get());
  for (PyObject* o : s->inputs) Py_VISIT(o);
  for (const auto& [o, _] : s->tracked) Py_VISIT(o);
  for (const auto& [o, v] : s->cells) {
    Py_VISIT(o);
    Py_VISIT(v.get());
  }
  return 0;
}

int session_clear(Session* s) {
  // Dropping a reference can run code that looks at this session: it finds it empty.
  const Held before = std::exchange(static_cast<Held&>(*s), Held());
  return 0;
}

void session_dealloc(Session* s) {
  PyObject_GC_UnTrack(s);
  session_clear(s);
  static_cast<Held*>(s)->~Held();
  PyTypeObject* t = Py_TYPE(s);
  t->tp_free(s);
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
  s->switches = thread_switches();
  s->ask_at = kEventsBetween;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pos); ++i) {
    reach(s, PyTuple_GET_ITEM(pos, i));
    shown(s, PyTuple_GET_ITEM(pos, i));
  }
  PyObject *k, *v;
  Py_ssize_t p = 0;
  while (PyDict_Next(kw, &p, &k, &v)) {
    reach(s, v);
    shown(s, v);
  }
  reach(s, f);
  thread_figures().spoiled = true;
  if (hook_install() < 0) return nullptr;
  Py_INCREF(s);
  tls_session = s;
  const int pause = tls_pause;
  const bool below = tls_below;
  tls_pause = 0;
  tls_below = false;
  bool of_c = false;
  if (!PyFunction_Check(f) && !PyMethod_Check(f)) {
    PyObject* call = _PyType_Lookup(Py_TYPE(f), g_str_call);
    of_c = call == nullptr || !(PyFunction_Check(call) || Py_IS_TYPE(call, &ModuleCall_Type));
    read_type(s, f);
    if (is_heap(Py_TYPE(f))) read_type_attr(s, Py_TYPE(f), g_str_call, call);
  }
  // A collection would run finalizers and weak reference callbacks of objects that have nothing to
  // do with this call, watched.
  s->collecting = PyGC_Disable();
  PyObject* r;
  {
    SignalsLetIn now;
    CallerScope callers;
    // A partial, a cache, a scripted function: what is known of it when the program calls it is
    // known here too.
    r = of_c ? probed_call(f, pos, kw) : PyObject_Call(f, pos, kw);
  }
  if (s->collecting) PyGC_Enable();
  tls_session = nullptr;
  tls_pause = pause;
  tls_below = below;
  hook_remove();
  Py_DECREF(s);
  return r;
}

PyObject* session_log(Session* s, PyObject* args) {
  Py_ssize_t start = 0, size = static_cast<Py_ssize_t>(s->log.size());
  if (!PyArg_ParseTuple(args, "|n", &start)) return nullptr;
  start = start < 0 ? 0 : start > size ? size : start;
  Ref list = Ref::steal(PyList_New(size - start));
  if (!list) return nullptr;
  static PyObject* names[sizeof(kKindNames) / sizeof(kKindNames[0])];
  for (Py_ssize_t i = 0; i < size - start; ++i) {
    const Event& e = s->log[static_cast<size_t>(start + i)];
    if (names[e.kind] == nullptr) names[e.kind] = PyUnicode_InternFromString(kKindNames[e.kind]);
    if (names[e.kind] == nullptr) return nullptr;
    PyObject* t = PyTuple_Pack(4, names[e.kind], e.obj.get(), e.key ? e.key.get() : Py_None,
                               e.value ? e.value.get() : Py_None);
    if (t == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, t);
  }
  return list.release();
}

PyObject* session_is_outside(Session* s, PyObject* o) {
  return PyBool_FromLong(outside_object(s, o));
}

PyObject* session_reach(Session* s, PyObject* o) {
  reach(s, o);
  Py_RETURN_NONE;
}

PyObject* session_touch(Session* s, PyObject* o) {
  touch(s, o, true);
  Py_RETURN_NONE;
}

// The container, and not what its elements hold, must be what it was.
PyObject* session_compare(Session* s, PyObject* o) {
  touch_kept(s, o, false);
  Py_RETURN_NONE;
}

PyObject* session_rely_on(Session* s, PyObject* o) {
  rely_on(s, o);
  Py_RETURN_NONE;
}

PyObject* session_track(Session* s, PyObject* args) {
  PyObject* o;
  long var;
  if (!PyArg_ParseTuple(args, "Ol", &o, &var)) return nullptr;
  s->tracked.add(o, var);
  Py_RETURN_NONE;
}

// vary(holder, key): the number at a key of a dict, in a class, or in a cell (whatever the key), is
// an input.  One in a list or a deque is tracked already.  The caller holds both until the run
// ends.
PyObject* session_vary(Session* s, PyObject* args) {
  PyObject *holder, *key;
  if (!PyArg_ParseTuple(args, "OO", &holder, &key)) return nullptr;
  if (PyList_Check(holder) || is_deque(holder) || PyDict_Check(holder)) s->numbered.insert(holder);
  if (!PyList_Check(holder) && !is_deque(holder))
    s->varying.insert(place_of_number(holder, PyCell_Check(holder) ? nullptr : key));
  Py_RETURN_NONE;
}

// differ(holder, key): a read of what is there, or of anything in the holder for None, asks
// `Handler.differs`.  The caller holds both until the run ends.
PyObject* session_differ(Session* s, PyObject* args) {
  PyObject *holder, *key;
  if (!PyArg_ParseTuple(args, "OO", &holder, &key)) return nullptr;
  s->differing.insert(place_of_number(holder, key == Py_None ? nullptr : key));
  Py_RETURN_NONE;
}

PyObject* session_tracked(Session* s, PyObject* o) {
  auto it = s->tracked.find(o);
  if (it == s->tracked.end()) Py_RETURN_NONE;
  return PyLong_FromLong(it->second);
}

PyObject* session_input(Session* s, PyObject* o) {
  s->inputs.add(o);
  Py_RETURN_NONE;
}

PyObject* session_asks_table(Session* s, PyObject* args) {
  PyObject *table, *key;
  if (!PyArg_ParseTuple(args, "OO", &table, &key)) return nullptr;
  return PyBool_FromLong(asks_table(s, table, key));
}

PyObject* session_asks_length(Session* s, PyObject* table) {
  return PyBool_FromLong(asks_length(s, table));
}

PyObject* session_made(Session* s, PyObject* o) {
  return PyBool_FromLong(s->made.count(o) != 0);
}

// [(holder, key or None, value if it is a plain one, its address or 0 for what was deleted)], in
// order, of what the run itself has put somewhere.
PyObject* session_stores(Session* s, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (const Store& store : s->stores) {
    PyObject* none = Py_None;
    const Ref t = Ref::steal(Py_BuildValue("(OOOn)", store.holder, store.key ? store.key.get() : none,
                                           store.value ? store.value.get() : none,
                                           reinterpret_cast<Py_ssize_t>(store.address)));
    if (!t || PyList_Append(list.get(), t.get()) < 0) return nullptr;
  }
  return list.release();
}

// [(container, content before, read as a whole, appended to a deque that was not, changed in ways
// that `stores` does not tell)] of the outside containers that were written or read as a whole.
PyObject* session_containers(Session* s, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (auto& [o, c] : s->containers) {
    if (!c.pre) continue;
    const Py_ssize_t appended = c.whole ? 0 : c.appended;
    const Ref t =
        Ref::steal(Py_BuildValue("(OOOnO)", o, c.pre.get(), c.whole ? Py_True : Py_False, appended,
                                 c.unlogged ? Py_True : Py_False));
    if (!t || PyList_Append(list.get(), t.get()) < 0) return nullptr;
  }
  return list.release();
}

// [(cell, content before or ABSENT)] of the outside cells that were written.
PyObject* session_cells(Session* s, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (PyObject* cell : s->written_cells) {
    const Ref& old = s->cells.find(cell)->second;
    const Ref t = Ref::steal(PyTuple_Pack(2, cell, old ? old.get() : g_absent));
    if (!t || PyList_Append(list.get(), t.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* session_attr_read(Session* s, PyObject* args) {
  PyObject *obj, *name, *value;
  if (!PyArg_ParseTuple(args, "OUO", &obj, &name, &value)) return nullptr;
  const Ref interned = intern(name);
  attr_load(s, obj, interned.get(), value);
  s->replaced.reset();  // who reads finds the number that is an input in its place
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* session_failure(Session* s, void*) {
  return Py_NewRef(s->failure ? s->failure.get() : Py_None);
}
// Whether the collector runs after the call: it rests while the call is watched, whatever the
// program says.
PyObject* session_collecting(Session* s, void*) { return PyBool_FromLong(s->collecting); }
int session_set_collecting(Session* s, PyObject* v, void*) {
  int on = v != nullptr ? PyObject_IsTrue(v) : -1;
  if (on < 0) return -1;
  s->collecting = on;
  return 0;
}
PyObject* session_others_ran(Session* s, void*) { return PyBool_FromLong(others_ran(s)); }
PyObject* session_events(Session* s, void*) { return PyLong_FromUnsignedLongLong(s->events); }

PyMethodDef session_methods[] = {
    {"run", reinterpret_cast<PyCFunction>(session_run), METH_VARARGS, nullptr},
    {"log", reinterpret_cast<PyCFunction>(session_log), METH_VARARGS, nullptr},
    {"is_outside", reinterpret_cast<PyCFunction>(session_is_outside), METH_O, nullptr},
    {"reach", reinterpret_cast<PyCFunction>(session_reach), METH_O, nullptr},
    {"touch", reinterpret_cast<PyCFunction>(session_touch), METH_O, nullptr},
    {"compare", reinterpret_cast<PyCFunction>(session_compare), METH_O, nullptr},
    {"rely_on", reinterpret_cast<PyCFunction>(session_rely_on), METH_O, nullptr},
    {"track", reinterpret_cast<PyCFunction>(session_track), METH_VARARGS, nullptr},
    {"tracked", reinterpret_cast<PyCFunction>(session_tracked), METH_O, nullptr},
    {"input", reinterpret_cast<PyCFunction>(session_input), METH_O, nullptr},
    {"vary", reinterpret_cast<PyCFunction>(session_vary), METH_VARARGS, nullptr},
    {"differ", reinterpret_cast<PyCFunction>(session_differ), METH_VARARGS, nullptr},
    {"asks_table", reinterpret_cast<PyCFunction>(session_asks_table), METH_VARARGS, nullptr},
    {"asks_length", reinterpret_cast<PyCFunction>(session_asks_length), METH_O, nullptr},
    {"made", reinterpret_cast<PyCFunction>(session_made), METH_O, nullptr},
    {"attr_read", reinterpret_cast<PyCFunction>(session_attr_read), METH_VARARGS, nullptr},
    {"stores", reinterpret_cast<PyCFunction>(session_stores), METH_NOARGS, nullptr},
    {"containers", reinterpret_cast<PyCFunction>(session_containers), METH_NOARGS, nullptr},
    {"written_cells", reinterpret_cast<PyCFunction>(session_cells), METH_NOARGS, nullptr},
    {"clear", reinterpret_cast<PyCFunction>(+[](Session* s, PyObject*) -> PyObject* {
       session_clear(s);
       Py_RETURN_NONE;
     }),
     METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef session_getset[] = {
    {"failure", reinterpret_cast<getter>(session_failure), nullptr, nullptr, nullptr},
    {"events", reinterpret_cast<getter>(session_events), nullptr, nullptr, nullptr},
    {"others_ran", reinterpret_cast<getter>(session_others_ran), nullptr, nullptr, nullptr},
    {"collecting", reinterpret_cast<getter>(session_collecting),
     reinterpret_cast<setter>(session_set_collecting), nullptr, nullptr},
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
PyType_Spec session_spec = {"magpy._interp.Session", sizeof(Session), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, session_slots};

PyObject* py_pause(PyObject*, PyObject*) {
  hold_signals();
  ++tls_pause;
  Py_RETURN_NONE;
}
PyObject* py_resume(PyObject*, PyObject*) {
  --tls_pause;
  release_signals();
  Py_RETURN_NONE;
}
// below(on): whether the handler wants to know of Python functions that start while events are
// paused; returns what it was.
PyObject* py_below(PyObject*, PyObject* on) {
  const bool before = tls_below;
  tls_below = on == Py_True && tls_session != nullptr;
  return PyBool_FromLong(before);
}
// watched(f, args, kwargs, hands_on=False): calls f with events on again, from within a handler.
// What runs below f gives its results to f, which looks at them unless it hands them on.
PyObject* py_watched(PyObject*, PyObject* args) {
  PyObject *f, *pos, *kw;
  int hands_on = 0;
  if (!PyArg_ParseTuple(args, "OO!O!|p", &f, &PyTuple_Type, &pos, &PyDict_Type, &kw, &hands_on))
    return nullptr;
  int pause = tls_pause;
  tls_pause = 0;
  PyObject* r;
  {
    ToCScope given(hands_on ? kPassedOn : kComputed, ToCScope::now());
    SignalsLetIn now;
    ProgramScope program;
    r = PyObject_Call(f, pos, kw);
  }
  tls_pause = pause;
  return r;
}
// call(f, args, kwargs): calls f with events on, reported like a call of the program.
PyObject* py_call(PyObject*, PyObject* args) {
  PyObject *f, *pos, *kw;
  if (!PyArg_ParseTuple(args, "OO!O!", &f, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return nullptr;
  int pause = tls_pause;
  tls_pause = 0;
  PyObject* r;
  {
    ToCScope given(kPassedOn, ToCScope::now());
    SignalsLetIn now;
    ProgramScope program;
    r = probed_call(f, pos, kw);
  }
  tls_pause = pause;
  return r;
}
PyObject* py_session_active(PyObject*, PyObject*) {
  return PyBool_FromLong(tls_session != nullptr);
}
// Each is held from here on.
void set_type(PyTypeObject*& place, PyObject* type) {
  auto* held = type == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
  Py_XSETREF(place, held);
}
PyObject* py_set_types(PyObject*, PyObject* args) {
  PyObject *tensor, *deque, *partial, *name_space, *defaultdict;
  if (!PyArg_ParseTuple(args, "OO!O!O!O!", &tensor, &PyType_Type, &deque, &PyType_Type, &partial,
                        &PyType_Type, &name_space, &PyType_Type, &defaultdict))
    return nullptr;
  set_type(g_tensor_type, tensor);
  set_type(g_deque_type, deque);
  set_type(g_partial_type, partial);
  set_type(g_namespace_type, name_space);
  set_type(g_defaultdict_type, defaultdict);
  Py_RETURN_NONE;
}
PyObject* py_set_homes(PyObject*, PyObject* homes) {
  const Ref list = Ref::steal(PySequence_List(homes));
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* home = PyList_GET_ITEM(list.get(), i);
    if (g_homes.insert(home).second) Py_INCREF(home);
  }
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
  const Ref list = Ref::steal(PySequence_List(names));
  if (!list) return nullptr;
  auto* as_code = reinterpret_cast<PyCodeObject*>(code);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    if (!PyUnicode_CheckExact(PyList_GET_ITEM(list.get(), i))) continue;
    const Ref name = intern(PyList_GET_ITEM(list.get(), i));
    if (!g_counters.insert(counter_key(as_code, name.get())).second) continue;
    Py_INCREF(as_code->co_filename);
    Py_INCREF(name.get());
  }
  Py_RETURN_NONE;
}
PyObject* py_forget_leaves(PyObject*, PyObject*) {
  g_leaves.clear();
  Py_RETURN_NONE;
}
// fresh(v): an object equal to v that nothing else refers to, so that its identity says where it
// came from.  The interpreter shares small ints; the copy made here is not the shared one.
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
      if (_PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(v), bytes.data(), bytes.size(), 1, 1,
                              1) < 0)
        return nullptr;
#else
      if (_PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(v), bytes.data(), bytes.size(), 1,
                              1) < 0)
        return nullptr;
#endif
      return _PyLong_FromByteArray(bytes.data(), bytes.size(), 1, 1);
    }
    PyLongObject* copy = _PyLong_New(1);
    if (copy == nullptr) return nullptr;
    auto magnitude = static_cast<digit>(value < 0 ? -value : value);
#if PY_VERSION_HEX >= 0x030C0000
    copy->long_value.ob_digit[0] = magnitude;
    copy->long_value.lv_tag =
        value == 0 ? 1 : (static_cast<uintptr_t>(1) << 3) | (value < 0 ? 2 : 0);
#else
    copy->ob_digit[0] = magnitude;
    Py_SET_SIZE(copy, value == 0 ? 0 : (value < 0 ? -1 : 1));
#endif
    return reinterpret_cast<PyObject*>(copy);
  }
  if (PyUnicode_CheckExact(v) && PyUnicode_GET_LENGTH(v) > 0) {
    Ref copy = Ref::steal(PyUnicode_New(PyUnicode_GET_LENGTH(v), PyUnicode_MAX_CHAR_VALUE(v)));
    if (!copy || PyUnicode_CopyCharacters(copy.get(), 0, v, 0, PyUnicode_GET_LENGTH(v)) < 0)
      return nullptr;
    return copy.release();
  }
  if (PyBytes_CheckExact(v) && PyBytes_GET_SIZE(v) > 1)
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(v), PyBytes_GET_SIZE(v));
  return Py_NewRef(v);
}

PyObject* py_is_caller(PyObject*, PyObject* frame) { return PyBool_FromLong(is_caller(frame)); }

PyObject* py_type_lookup(PyObject*, PyObject* args) {
  PyObject *t, *name;
  if (!PyArg_ParseTuple(args, "O!U", &PyType_Type, &t, &name) || !have_absent()) return nullptr;
  PyObject* v = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(t), name);
  return Py_NewRef(v ? v : g_absent);
}

PyMethodDef functions[] = {
    {"pause", py_pause, METH_NOARGS, "Stops events on this thread until resume()."},
    {"resume", py_resume, METH_NOARGS, nullptr},
    {"below", py_below, METH_O,
     "below(on): whether the session wants to know of Python functions that start while events are "
     "paused."},
    {"watched", py_watched, METH_VARARGS, "watched(f, args, kwargs, hands_on=False): calls f with events on."},
    {"call", py_call, METH_VARARGS,
     "call(f, args, kwargs): calls f with events on, reported like a call of the program."},
    {"session_active", py_session_active, METH_NOARGS, "Whether a capture runs on this thread."},
    {"set_types", py_set_types, METH_VARARGS,
     "set_types(Tensor or None, deque, partial, SimpleNamespace, defaultdict)."},
    {"set_homes", py_set_homes, METH_O,
     "set_homes(classes and dicts of modules): where names of torch's operations are."},
    {"set_leaf_code", py_set_leaf_code, METH_VARARGS, "set_leaf_code(code, verdict or -1)."},
    {"add_counters", py_add_counters, METH_VARARGS,
     "add_counters(code, names): names that the code both reads and stores."},
    {"forget_leaves", py_forget_leaves, METH_NOARGS, nullptr},
    {"fresh", py_fresh, METH_O,
     "An equal number, string or bytes that nothing else refers to; `v` itself where there is "
     "none."},
    {"is_caller", py_is_caller, METH_O,
     "Whether a frame was there before the run that this thread watches."},
    {"type_lookup", py_type_lookup, METH_VARARGS,
     "The raw class attribute along the MRO, or ABSENT."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void ask_whether_given_up(Session* s) {
  ErrorGuard error;
  const Ref answer = ask(s, "given_up");
  s->ask_at = s->events + (answer.get() == Py_None ? kEventsSoon : kEventsBetween);
  if (answer.get() != Py_True) return;
  ++tls_pause;  // session_run sets it back
  if (s->collecting) PyGC_Enable();
  s->collecting = 0;
}

int init_session(PyObject* module) {
  g_str_dict = PyUnicode_InternFromString("__dict__");
  g_str_class = PyUnicode_InternFromString("__class__");
  g_str_getattr = PyUnicode_InternFromString("__getattr__");
  g_str_getattribute = PyUnicode_InternFromString("__getattribute__");
  g_str_setattr = PyUnicode_InternFromString("__setattr__");
  g_str_delattr = PyUnicode_InternFromString("__delattr__");
  g_str_call = PyUnicode_InternFromString("__call__");
  g_str_get = PyUnicode_InternFromString("__get__");
  g_str_set = PyUnicode_InternFromString("__set__");
  g_module = module;
  const Ref wrapper = Ref::steal(PyObject_GetAttrString(Py_None, "__str__"));
  if (!wrapper) return -1;
  set_type(g_method_wrapper_type, reinterpret_cast<PyObject*>(Py_TYPE(wrapper.get())));
  g_session_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&session_spec));
  if (g_session_type == nullptr || PyModule_AddType(module, g_session_type) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace magpy
