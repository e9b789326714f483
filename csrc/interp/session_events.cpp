// What the probes report: each operation of the program, before or after it, in terms of outside objects.
//
// Owns: the on_* functions of session.h and what the session does around a call of a C function.  Does not own: the operations on
// outside objects (session_state.cpp) nor the verdict on a C function (magpy/capture/leaves.py; cached here).  Called by the
// probes and the frame-evaluation hook with the GIL held.

#include <cstring>

#include "classes.h"
#include "dispatch.h"
#include "iterators.h"
#include "session_impl.h"

namespace magpy {

namespace {

// A slot of a type: which slot, all types share the description of that, and the C function that fills it.
void* slot_key(PyWrapperDescrObject* descr) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(descr->d_base) * 0x9E3779B97F4A7C15ull ^
                                 reinterpret_cast<uintptr_t>(descr->d_wrapped));
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
    key = slot_key(reinterpret_cast<PyWrapperDescrObject*>(f));
  } else if (t == g_method_wrapper_type) {
    // What a bound slot does is the slot's, whoever it is bound to.
    key = slot_key(reinterpret_cast<WrapperObject*>(f)->descr);
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

bool is_builtin(PyObject* f, const char* name) {
  return PyCFunction_Check(f) && std::strcmp(reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name, name) == 0;
}

// functools.reduce; its function reports itself (iterators.h).  An array's method has the same name.
bool is_reduce(PyObject* f) {
  if (!is_builtin(f, "reduce")) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(f)->m_module;
  return module != nullptr && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "_functools") == 0;
}

// C functions that hand on what an iterator or a function gives them without looking at it.
bool passes_on(PyObject* f) {
  for (PyTypeObject* t : {&PyList_Type, &PyTuple_Type, &PyEnum_Type, &PyZip_Type, &PyMap_Type, &PyFilter_Type})
    if (f == reinterpret_cast<PyObject*>(t)) return true;
  return is_builtin(f, "next") || is_reduce(f);
}

// C functions that look at no element of a container or an iterator, and hand on the elements themselves, or an iterator or view
// that holds them.
bool keeps_elements(PyObject* f) {
  for (PyTypeObject* t : {&PyList_Type, &PyTuple_Type, &PyEnum_Type, &PyZip_Type, &PyReversed_Type})
    if (f == reinterpret_cast<PyObject*>(t)) return true;
  for (const char* name : {"len", "iter", "next"})
    if (is_builtin(f, name)) return true;
  // Methods that hand on what their container holds.
  PyObject* self = bound_self(f);
  if (!PyCFunction_Check(f) || self == nullptr || !(PyDict_Check(self) || PyList_Check(self) || is_deque(self))) return false;
  const char* method = reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name;
  for (const char* name : {"items", "values", "keys", "copy", "pop", "popleft", "popitem", "reverse"})
    if (strcmp(method, name) == 0) return true;
  return false;
}

// type(x) and isinstance(x, ...).
bool asks_class(PyObject* f, Py_ssize_t npos) {
  if (f == reinterpret_cast<PyObject*>(&PyType_Type)) return npos == 1;
  return is_builtin(f, "isinstance");
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

// What is taken apart, and put together, without a look at its elements, which stay the same objects.
bool is_sequence(PyObject* v) { return PyTuple_Check(v) || PyList_Check(v); }

// Two operands are about to be combined or, which looks into them, compared.
void operands_pre(PyObject* a, PyObject* b, bool deep) {
  Session* s = tls_session;
  ++s->events;
  if ((is_leaf(a) || is_tensor(a)) && (is_leaf(b) || is_tensor(b))) return;
  ErrorGuard error;
  if (!deep && is_sequence(a) && is_sequence(b)) {
    touch_kept(s, a, false);
    touch_kept(s, b, false);
    return;
  }
  if (!tracked(s, a)) touch(s, a, deep);
  if (!tracked(s, b)) touch(s, b, deep);
}

// An object written in C whose operations may ask methods of the program and compute with what they answer.  Lists take over
// what they are given.
bool computes(PyObject* o) {
  if (is_leaf(o) || is_tensor(o) || PyList_Check(o) || PyTuple_Check(o) || is_deque(o)) return false;
  return PyDict_Check(o) || c_base(Py_TYPE(o)) == Py_TYPE(o);
}

// Whether the answer of a comparison is what a method of the program answers, as it is.
bool compares_in_python(PyObject* o, int op) {
  static PyObject* const names[] = {PyUnicode_InternFromString("__lt__"), PyUnicode_InternFromString("__le__"),
                                    PyUnicode_InternFromString("__eq__"), PyUnicode_InternFromString("__ne__"),
                                    PyUnicode_InternFromString("__gt__"), PyUnicode_InternFromString("__ge__")};
  if (is_leaf(o) || is_tensor(o)) return true;
  PyObject* found = names[op] == nullptr ? nullptr : _PyType_Lookup(Py_TYPE(o), names[op]);
  return found != nullptr && PyFunction_Check(found);
}

// Gives a call to a method of the handler; false when it could not be given.  *result is new, or nullptr with an exception.
bool handler_calls(Session* s, const char* method, PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames,
                   PyObject** result) {
  PyObject* kwargs = nullptr;
  PyObject* tuple = make_args(args, npos, kwnames, &kwargs);
  if (tuple == nullptr) {
    ErrorGuard error;
    fail(s, "call");
    return false;
  }
  {
    PauseGuard pause;
    *result = PyObject_CallMethod(s->handler, method, "OOO", f, tuple, kwargs);
  }
  Py_DECREF(tuple);
  Py_DECREF(kwargs);
  return true;
}

// A C function is called with tensors.  True when the handler performed the call: it takes their data.
bool array_call(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, PyObject** result) {
  PyObject* r = nullptr;
  if (!handler_calls(s, "array_call", f, args, npos, kwnames, &r)) return false;
  if (r == g_absent) {
    Py_DECREF(r);
    return false;
  }
  *result = r;
  return true;
}

// What came of two operands is tracked when one of them is.  Tensor operations are the recorder's.
PyObject* operated(const char* method, int op, PyObject* a, PyObject* b, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || !(tracked(s, a) || tracked(s, b)) || is_tensor(a) || is_tensor(b)) return result;
  return derive(s, method, op, a, b, result);
}

}  // namespace

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
      // A function that the program makes may share it: then it is this very cell.
      if (s->outside->emplace(cell, true).second) Py_INCREF(cell);
      PyObject* names = reinterpret_cast<PyCodeObject*>(func->func_code)->co_localsplusnames;
      Py_ssize_t n = PyTuple_GET_SIZE(names) - PyTuple_GET_SIZE(func->func_closure) + i;
      // The names of free variables stand last.
      auto* code = reinterpret_cast<PyCodeObject*>(func->func_code);
      if (n >= 0 && g_counters.find(counter_key(code, PyTuple_GET_ITEM(names, n))) != g_counters.end())
        s->counter_cells->insert(cell);
    }
}

void on_result(PyObject* func, PyTypeObject* self, PyObject* value) {
  Session* s = tls_session;
  if (s->tracked->empty()) return;
  if (!tracked(s, value)) {
    // `dir` sorts what it is given.
    static PyObject* const str_dir = PyUnicode_InternFromString("__dir__");
    ErrorGuard error;
    if ((PyList_Check(value) || PyTuple_Check(value)) && str_dir != nullptr && _PyType_Lookup(self, str_dir) == func)
      rely_on(s, value);
    return;
  }
  // Slots whose answer the interpreter computes with, wherever they are called from.
  static PyObject* const slots[] = {
      PyUnicode_InternFromString("__index__"), PyUnicode_InternFromString("__len__"),         PyUnicode_InternFromString("__bool__"),
      PyUnicode_InternFromString("__hash__"),  PyUnicode_InternFromString("__length_hint__"), PyUnicode_InternFromString("__float__"),
      PyUnicode_InternFromString("__complex__"), PyUnicode_InternFromString("__contains__"),  PyUnicode_InternFromString("__eq__"),
      PyUnicode_InternFromString("__instancecheck__"), PyUnicode_InternFromString("__subclasscheck__"),
  };
  ErrorGuard error;
  for (PyObject* name : slots)
    if (name != nullptr && _PyType_Lookup(self, name) == func) {
      rely_on(s, value);
      return;
    }
}

void on_hashed(PyObject* key) {
  Session* s = tls_session;
  if (s->tracked->empty()) return;
  ErrorGuard error;
  rely_on(s, key);
}

void on_value_to_c(PyObject* value, ToC use) {
  if (is_leaf(value) && (use != kComputed || tls_session->tracked->empty())) return;
  ErrorGuard error;
  touch(tls_session, value, use == kComputed);
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
  if (value != nullptr && PyFrame_Check(obj) && PyFrame_Check(value)) read_frame(tls_session, value);
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
  if (may_count(value) && s->counter_cells->count(cell) != 0) {
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
  tls_c_call = computes(obj) && !PyDict_Check(obj) ? kComputed : kPassedOn;
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

// obj[key] = value copies the value, as arrays and buffers do; containers keep it, and a class's own method is watched.
static bool copies(PyObject* obj) {
  if (PyDict_Check(obj) || PyList_Check(obj) || is_deque(obj) || is_tensor(obj)) return false;
  return c_base(Py_TYPE(obj)) != &PyBaseObject_Type;
}

// It looks into the value: what goes to several places at once, and all that an array is given.
static bool takes_apart(PyObject* obj, PyObject* key) {
  if (PyList_Check(obj) || PyByteArray_Check(obj)) return PySlice_Check(key);
  return copies(obj);
}

void on_item_store(PyObject* obj, PyObject* key, PyObject* value) {
  Session* s = tls_session;
  ++s->events;
  tls_c_call = computes(obj) ? kComputed : kPassedOn;
  if (!s->tracked->empty() && !is_tensor(obj)) {
    ErrorGuard error;
    if (tracked(s, obj)) {
      PyObject* r = derive(s, "item_store", 0, obj, key, Py_NewRef(value ? value : g_absent));
      Py_XDECREF(r);
      return;
    }
    rely_on(s, key);
    if (value != nullptr && copies(obj)) rely_on(s, value);
  }
  if (value != nullptr && !is_leaf(value) && takes_apart(obj, key)) {
    ErrorGuard error;
    touch(s, value, !PyList_Check(obj));
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
  if (((how == Touch::kUnpack || how == Touch::kExtend) && is_sequence(obj)) || (how == Touch::kIter && passes_elements_on(obj)))
    touch_kept(s, obj, false);
  else
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

void on_binary_pre(int, PyObject* a, PyObject* b) {
  operands_pre(a, b, false);
  // Text formatting, a dict and an array compute with what methods of the program answer.
  tls_c_call = PyUnicode_Check(a) || PyBytes_Check(a) || computes(a) || computes(b) ? kComputed : kPassedOn;
}

void on_compare_pre(int op, PyObject* a, PyObject* b) {
  Session* s = tls_session;
  // Numbers of the run in tuples and lists are compared one by one, each with what it meets.
  if ((op == Py_EQ || op == Py_NE) && ((PyTuple_Check(a) && PyTuple_Check(b)) || (PyList_Check(a) && PyList_Check(b))) &&
      (has_tracked(s, a) || has_tracked(s, b))) {
    ErrorGuard error;
    PyObject* r = nullptr;
    {
      PauseGuard pause;
      r = PyObject_CallMethod(s->handler, "compare_items", "OO", a, b);
    }
    if (r == nullptr) fail(s, "compare_items");
    if (r == Py_True) {
      ++s->events;
      touch_kept(s, a, true);
      touch_kept(s, b, true);
    }
    bool done = r == Py_True;
    Py_XDECREF(r);
    if (done) {
      tls_c_call = kPassedOn;
      return;
    }
  }
  operands_pre(a, b, true);
  tls_c_call = compares_in_python(a, op) && compares_in_python(b, op) ? kPassedOn : kComputed;
}

PyObject* on_binary(int op, PyObject* a, PyObject* b, PyObject* result) { return operated("binary", op, a, b, result); }

PyObject* on_compare(int op, PyObject* a, PyObject* b, PyObject* result) { return operated("compare", op, a, b, result); }

bool on_identity(PyObject* a, PyObject* b) {
  Session* s = tls_session;
  ++s->events;
  if (!tracked(s, a) && !tracked(s, b)) return false;
  ErrorGuard error;
  rely_on(s, a);
  rely_on(s, b);
  // What is tracked is a copy; the interpreter keeps one object for each of these numbers.
  constexpr long kFirst = -5, kLast = 256;
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(a, &overflow);
  return overflow == 0 && value >= kFirst && value <= kLast && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

void on_raised(PyObject* a, PyObject* b) {
  Session* s = tls_session;
  if (s->tracked->empty()) return;
  ErrorGuard error;
  for (PyObject* v : {a, b})
    if (v != nullptr && !is_tensor(v)) rely_on(s, v);
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
  if (PyMethod_Check(f) && !PyFunction_Check(PyMethod_GET_FUNCTION(f))) {
    // A method made of something else than a Python function calls that with its receiver in front.
    std::vector<PyObject*> all{PyMethod_GET_SELF(f)};
    all.insert(all.end(), args, args + npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
    return on_call_pre(PyMethod_GET_FUNCTION(f), all.data(), npos + 1, kwnames, result);
  }
  if (Py_IS_TYPE(f, &ModuleCall_Type) && npos > 0 && compiled_behind(args[0]) != nullptr)
    return on_call_pre(compiled_behind(args[0]), args + 1, npos - 1, kwnames, result);
  uint8_t leaf;
  PyObject* self = nullptr;
  bool use_handler = false;
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool takes_tensors = false;
  PyObject* behind = nullptr;
  {
    ErrorGuard error;
    leaf = classify(s, f, nullptr);
    self = bound_self(f);
    for (Py_ssize_t i = 0; leaf == kLeafTouch && self == nullptr && i < npos + nkw && !takes_tensors; ++i)
      takes_tensors = has_tensor(args[i]);
  }
  if (takes_tensors && array_call(s, f, args, npos, kwnames, result)) return true;
  {
    ErrorGuard error;
    if (!s->tracked->empty() && leaf != kLeafFrame && leaf != kLeafPure && leaf != kLeafHandler) {
      bool any = self != nullptr && tracked(s, self);
      const bool keeps = leaf == kLeafTouch && keeps_elements(f);
      for (Py_ssize_t i = 0; i < npos + nkw && !any; ++i)
        any = keeps && passes_elements_on(args[i]) ? false : has_tracked(s, args[i]);
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
        // The dispatcher calls it directly.
        behind = compiled_behind(f);
        break;
      }
      case kLeafPure:
        if (npos > 0 && asks_class(f, npos))
          read_type(s, args[0]);
        else if (is_builtin(f, "issubclass") && npos == 2)
          read_bases(s, args[0]);
        else
          // A text is a program, a name.
          for (Py_ssize_t i = 0; i < npos + nkw; ++i)
            if (PyUnicode_Check(args[i])) rely_on(s, args[i]);
        return false;
      case kLeafTouch:
      case kLeafTorch:
        tls_c_call = passes_on(f) ? kPassedOn : kComputed;
        if (self != nullptr && keeps_elements(f))
          touch_kept(s, self, true);
        else if (self != nullptr)
          touch(s, self, true);
        for (Py_ssize_t i = 0; i < npos + nkw; ++i)
          if (passes_elements_on(args[i]) && keeps_elements(f))
            touch_kept(s, args[i], true);
          else
            touch(s, args[i], true);
        return false;
      case kLeafSetattr:
        if (first != nullptr && nrest == 2 && PyUnicode_Check(rest[0])) {
          rely_on(s, rest[0]);  // the interpreter takes an equal string in its place
          PyObject* name = Py_NewRef(rest[0]);
          PyUnicode_InternInPlace(&name);
          attr_store(s, first, name, rest[1]);
          Py_DECREF(name);
        }
        return false;
      case kLeafDelattr:
        if (first != nullptr && nrest == 1 && PyUnicode_Check(rest[0])) {
          rely_on(s, rest[0]);
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
        // A dict and a set look for each element among those that they have.
        tls_c_call = first != nullptr && (PyList_Check(first) || is_deque(first)) ? kPassedOn : kComputed;
        for (Py_ssize_t i = 0; i < nrest + nkw; ++i)
          if (first != nullptr && PyList_Check(first))
            touch_kept(s, rest[i], false);
          else
            touch(s, rest[i], false);
        return false;
      case kLeafGetattr:
        return false;
      default:
        break;
    }
  }
  if (leaf == kLeafFrame && !use_handler) return behind != nullptr && on_call_pre(behind, args, npos, kwnames, result);
  // The handler performs the call itself, or leaves it to us by answering with the sentinel; with NotImplemented it
  // leaves a call for its effect to us, below which nothing is watched, and which finds the program's own frame.
  PyObject* r = nullptr;
  if (!handler_calls(s, use_handler ? "tracked_call" : "call", f, args, npos, kwnames, &r)) return false;
  if (r == g_absent) {
    Py_DECREF(r);
    tls_c_call = use_handler && !passes_on(f) ? kComputed : kPassedOn;
    return false;
  }
  if (r == Py_NotImplemented) {
    Py_DECREF(r);
    PauseGuard pause;
    r = PyObject_Vectorcall(f, args, npos, kwnames);
    ErrorGuard error;
    PyObject* done = PyObject_CallMethod(s->handler, "effect_done", "O", r ? r : g_absent);
    if (done == nullptr) fail(s, "effect_done");
    Py_XDECREF(done);
  }
  *result = r;
  return true;
}

PyObject* on_call(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, PyObject* result) {
  Session* s = tls_session;
  if (PyFunction_Check(f) || PyMethod_Check(f)) return result;
  if (Py_IS_TYPE(f, &Compiled_Type)) return on_call(compiled_behind(f), args, npos, kwnames, result);
  ErrorGuard error;
  uint8_t leaf = classify(s, f, nullptr);
  if (result != nullptr && PyFrame_Check(result)) read_frame(s, result);
  if (result != nullptr && !watch_if_iterator(result)) on_uninstrumented(nullptr, "there are too many kinds of iterators");
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

void on_import(PyObject* module, PyObject* name) {
  Session* s = tls_session;
  ErrorGuard error;
  PyObject* modules = PyImport_GetModuleDict();
  if (modules == nullptr) return;
  auto read = [&](PyObject* key) {
    if (key == nullptr || PyDict_GetItemWithError(modules, key) != module) {
      PyErr_Clear();
      return false;
    }
    if (s->outside->emplace(modules, true).second) Py_INCREF(modules);
    read_dict(s, modules, key, module);
    return true;
  };
  // The outermost package of a dotted name; relative names are what the module says.
  Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
  PyObject* first = dot > 0 ? PyUnicode_Substring(name, 0, dot) : nullptr;
  PyObject* own = PyModule_Check(module) ? PyModule_GetNameObject(module) : nullptr;
  bool known = read(name);
  PyObject* whole = dot > 0 && !known ? PyDict_GetItemWithError(modules, name) : nullptr;
  if (whole != nullptr) {
    if (s->outside->emplace(modules, true).second) Py_INCREF(modules);
    read_dict(s, modules, name, whole);
  }
  known = known || read(first) || read(own);
  Py_XDECREF(first);
  Py_XDECREF(own);
  PyErr_Clear();
  if (!known || !PyModule_Check(module)) reach(s, module);
}

}  // namespace magpy
