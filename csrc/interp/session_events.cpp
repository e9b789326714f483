// What the probes report: each operation of the program, before or after it, in terms of outside
// objects.
//
// Owns: the on_* functions of session.h but those for items (session_items.cpp) and calls
// (session_calls.cpp).  Does not own: what an attribute is found in (session_attributes.cpp), the
// operations on outside objects (session_state.cpp).  Called by the probes and the frame-evaluation
// hook with the GIL held.

#include <cstring>

#include "classes.h"
#include "dispatch.h"
#include "iterators.h"
#include "looks.h"
#include "session_impl.h"
#include "tables.h"

namespace magpy {

namespace {

// Two operands are about to be combined or, which looks into them, compared.
void operands_pre(PyObject* a, PyObject* b, bool deep) {
  Session* s = tls_session;
  count_event(s);
  if (is_leaf(a) && is_leaf(b)) return;
  ErrorGuard error;
  for (PyObject* v : {a, b})
    if (is_tensor(v)) read_protocols(s, Py_TYPE(v));
  if ((is_leaf(a) || is_tensor(a)) && (is_leaf(b) || is_tensor(b))) return;
  // [x] * 3, and dicts, which look at their keys alone (`|`).
  const bool repeats =
      (is_sequence(a) && PyLong_CheckExact(b)) || (PyLong_CheckExact(a) && is_sequence(b));
  const bool dicts = PyDict_CheckExact(a) && PyDict_CheckExact(b);
  if (!deep && ((is_sequence(a) && is_sequence(b)) || repeats || dicts)) {
    for (PyObject* v : {a, b})
      if (!is_leaf(v)) touch_kept(s, v, false);
    return;
  }
  // An array makes an array of what it meets, and looks into what that holds.
  deep = deep || PyObject_CheckBuffer(a) || PyObject_CheckBuffer(b);
  if (!tracked(s, a)) touch(s, a, deep);
  if (!tracked(s, b)) touch(s, b, deep);
}

// Whether the answer of a comparison is what a method of the program answers, as it is.
bool compares_in_python(PyObject* o, int op) {
  static PyObject* const names[] = {
      PyUnicode_InternFromString("__lt__"), PyUnicode_InternFromString("__le__"),
      PyUnicode_InternFromString("__eq__"), PyUnicode_InternFromString("__ne__"),
      PyUnicode_InternFromString("__gt__"), PyUnicode_InternFromString("__ge__")};
  if (is_leaf(o) || is_tensor(o)) return true;
  PyObject* found = names[op] == nullptr ? nullptr : _PyType_Lookup(Py_TYPE(o), names[op]);
  return found != nullptr && PyFunction_Check(found);
}

// What came of two operands is tracked when one of them is.  Tensor operations are the recorder's.
PyObject* operated(const char* method, int op, PyObject* a, PyObject* b, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || !(tracked(s, a) || tracked(s, b)) || is_tensor(a) || is_tensor(b))
    return result;
  return derive(s, method, op, a, b, result);
}

}  // namespace

// Whether an object's class has this very function for the attributes of others (`__get__ =
// fetch`).
static bool works_as_descriptor(PyFunctionObject* func, PyObject* object) {
  static PyObject* const str_delete = PyUnicode_InternFromString("__delete__");
  PyTypeObject* t = Py_TYPE(object);
  if (!is_heap(t)) return false;
  for (PyObject* name : {g_str_get, g_str_set, str_delete})
    if (name != nullptr && _PyType_Lookup(t, name) == reinterpret_cast<PyObject*>(func))
      return true;
  return false;
}

void on_frame_enter(PyFunctionObject* func, PyObject* first_arg) {
  Session* s = tls_session;
  count_event(s);
  ErrorGuard error;
  static PyObject* const str_del = PyUnicode_InternFromString("__del__");
  if (first_arg != nullptr &&
      (reinterpret_cast<PyCodeObject*>(func->func_code)->co_name == str_del ||
       PyWeakref_CheckRefExact(first_arg)))
    ask(s, "finalized", first_arg);
  if (first_arg != nullptr && !PyLong_CheckExact(first_arg)) {
    method_origin(s, func, first_arg);
    // A descriptor stands in a class: its own state is read before the attribute that it makes is.
    if (works_as_descriptor(func, first_arg)) reach(s, first_arg);
  }
  read_function(s, func);
}

void read_function(Session* s, PyFunctionObject* func) {
  auto* f = reinterpret_cast<PyObject*>(func);
  if (s->made.find(f) != s->made.end()) return;
  if (!first_time(s, kFunc, f, nullptr)) return;
  // What the run has put there is its own, and nothing that guards could look at.
  static PyObject* const str_code = PyUnicode_InternFromString("__code__");
  static PyObject* const str_defaults = PyUnicode_InternFromString("__defaults__");
  static PyObject* const str_kwdefaults = PyUnicode_InternFromString("__kwdefaults__");
  const bool own_defaults = written(s, f, str_defaults),
             own_kwdefaults = written(s, f, str_kwdefaults);
  PyObject *none = Py_None, *absent = g_absent;
  PyObject* defaults = own_defaults ? absent : func->func_defaults ? func->func_defaults : none;
  PyObject* kwdefaults = own_kwdefaults          ? absent
                         : func->func_kwdefaults ? func->func_kwdefaults
                                                 : none;
  PyObject* code_read = written(s, f, str_code) ? absent : func->func_code;
  const Ref state = Ref::steal(PyTuple_Pack(3, code_read, defaults, kwdefaults));
  if (!state) return fail(s, "frame");
  emit(s, kFunc, f, nullptr, state.get());
  s->outside.add(func->func_globals);
  if (!own_defaults) reach(s, func->func_defaults);
  if (!own_kwdefaults && func->func_kwdefaults != nullptr) {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(func->func_kwdefaults, &pos, &k, &v)) reach(s, v);
    s->outside.add(func->func_kwdefaults);
    touch(s, func->func_kwdefaults, false);
  }
  if (func->func_closure != nullptr)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(func->func_closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(func->func_closure, i);
      s->cells.add(cell);
      // A function that the program makes may share it: then it is this very cell.
      s->outside.add(cell);
      PyObject* names = reinterpret_cast<PyCodeObject*>(func->func_code)->co_localsplusnames;
      Py_ssize_t n = PyTuple_GET_SIZE(names) - PyTuple_GET_SIZE(func->func_closure) + i;
      // The names of free variables stand last.
      auto* code = reinterpret_cast<PyCodeObject*>(func->func_code);
      if (n >= 0 &&
          g_counters.find(counter_key(code, PyTuple_GET_ITEM(names, n))) != g_counters.end())
        s->counter_cells.insert(cell);
    }
}

void on_result(PyObject* func, PyTypeObject* self, PyObject* value) {
  Session* s = tls_session;
  if (s->tracked.empty()) return;
  if (!tracked(s, value)) {
    // `dir` sorts what it is given.
    static PyObject* const str_dir = PyUnicode_InternFromString("__dir__");
    ErrorGuard error;
    if ((PyList_Check(value) || PyTuple_Check(value)) && str_dir != nullptr &&
        _PyType_Lookup(self, str_dir) == func)
      rely_on(s, value);
    return;
  }
  // Slots whose answer the interpreter computes with, wherever they are called from.
  static PyObject* const slots[] = {
      PyUnicode_InternFromString("__index__"),
      PyUnicode_InternFromString("__len__"),
      PyUnicode_InternFromString("__bool__"),
      PyUnicode_InternFromString("__hash__"),
      PyUnicode_InternFromString("__length_hint__"),
      PyUnicode_InternFromString("__float__"),
      PyUnicode_InternFromString("__complex__"),
      PyUnicode_InternFromString("__contains__"),
      PyUnicode_InternFromString("__eq__"),
      PyUnicode_InternFromString("__instancecheck__"),
      PyUnicode_InternFromString("__subclasscheck__"),
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
  if (s->tracked.empty()) return;
  ErrorGuard error;
  rely_on(s, key);
}

void on_advanced(PyObject* iterator) {
  Session* s = tls_session;
  if (s->tracked.empty()) return;
  // Nothing has changed since it was last advanced, by the same C function.
  if (s->advanced == iterator && s->advanced_at == s->events) return;
  s->advanced = iterator;
  s->advanced_at = s->events;
  ErrorGuard error;
  rely_on(s, iterator);
}

void on_value_to_c(PyObject* value, ToC use) {
  if (is_leaf(value) && (use != kComputed || tls_session->tracked.empty())) return;
  ErrorGuard error;
  touch(tls_session, value, use == kComputed);
}

void on_uninstrumented(PyCodeObject* code, const char* why) {
  Session* s = tls_session;
  if (s == nullptr || s->failure) return;
  ErrorGuard error;
  s->failure = Ref::steal(Py_BuildValue("(ss)", "instrument", why));
  if (!s->failure) PyErr_Clear();
  (void)code;
}

Ref on_getter(PyObject* obj, PyObject* name) {
  const bool of_class = PyType_Check(obj) && is_heap(reinterpret_cast<PyTypeObject*>(obj));
  if (!is_heap(Py_TYPE(obj)) && !of_class) return Ref();
  ErrorGuard error;
  reach_descriptor(tls_session, obj, name);
  if (!is_heap(Py_TYPE(obj))) return Ref();
  return getter_to_call(tls_session, obj, name);
}

bool is_looked_up_by_c(PyObject* obj) {
  ErrorGuard error;  // a lookup in a class takes what is raised for its own error
  PyTypeObject* t = Py_TYPE(obj);
  return hook_of_c(t, g_str_getattr) != nullptr || hook_of_c(t, g_str_getattribute) != nullptr;
}

PyObject* on_attr_load(PyObject* obj, PyObject* name, PyObject* value, PyObject* getter) {
  count_event(tls_session);
  ErrorGuard error;
  AfterGuard after(tls_session);
  if (value != nullptr) shown(tls_session, value);
  tls_session->getter = getter;
  if (value != nullptr && tracked(tls_session, obj)) {
    Ref given = Ref::steal(derive(tls_session, "attribute", 0, obj, name, Py_NewRef(value)));
    if (!given || given.get() == Py_None) return value;
    Py_DECREF(value);
    return given.release();
  }
  if (value != nullptr && PyFrame_Check(obj) && PyFrame_Check(value))
    read_frame(tls_session, value);
  attr_load(tls_session, obj, name, value);
  tls_session->getter = nullptr;
  return take_replaced(tls_session, value);
}

void on_attr_store(PyObject* obj, PyObject* name, PyObject* value) {
  count_event(tls_session);
  ErrorGuard error;
  attr_store(tls_session, obj, name, value);
}

PyObject* on_global_load(PyObject* globals, PyObject* builtins, PyObject* name, PyObject* value) {
  Session* s = tls_session;
  count_event(s);
  ErrorGuard error;
  shown(s, value);
  s->outside.add(globals);
  PyObject* in_globals = item_or_null(globals, name);
  if (in_globals != nullptr && in_globals == value && counter_read(s, globals, name, value))
    return take_replaced(s, value);
  read_dict(s, globals, name, in_globals);
  if (in_globals == nullptr && builtins != nullptr && PyDict_Check(builtins)) {
    s->outside.add(builtins);
    read_dict(s, builtins, name, value);
  }
  return value;
}

void on_global_access(PyObject* globals, PyObject* builtins, PyObject* name) {
  Session* s = tls_session;
  ErrorGuard error;
  if (!PyDict_CheckExact(globals) || !PyDict_Check(builtins)) return;
  if (item_or_null(globals, name) != nullptr || item_or_null(builtins, name) != nullptr) return;
  count_event(s);
  for (PyObject* d : {globals, builtins}) {
    s->outside.add(d);
    read_dict(s, d, name, nullptr);
  }
}

void on_import_access(PyObject* module, PyObject* name) {
  if (!PyModule_Check(module)) return;
  Session* s = tls_session;
  ErrorGuard error;
  PyObject* d = PyModule_GetDict(module);
  if (item_or_null(d, name) != nullptr) return;
  count_event(s);
  attr_load(s, module, name, nullptr);
}

void on_global_store(PyObject* globals, PyObject* name, PyObject* value) {
  Session* s = tls_session;
  count_event(s);
  ErrorGuard error;
  s->outside.add(globals);
  dict_store(s, globals, name, value);
}

void on_name_access(PyObject* locals, PyObject* name) {
  Session* s = tls_session;
  count_event(s);
  ErrorGuard error;
  (void)name;
  if (known_outside(s, locals)) {
    touch(s, locals, false);
  }
}

void on_cell_load(PyObject* cell, PyObject* value) {
  Session* s = tls_session;
  count_event(s);
  {
    ErrorGuard error;
    shown(s, value);
  }
  auto it = s->cells.find(cell);
  if (it == s->cells.end() || s->written_cells.count(cell) != 0) return;
  if (!first_time(s, kCell, cell, nullptr)) return;
  ErrorGuard error;
  if (may_vary(s, cell, nullptr, value) ||
      (may_count(value) && s->counter_cells.count(cell) != 0)) {
    PauseGuard pause;
    const Ref fresh = ask(s, "counter", cell, Py_None, value);
    if (!fresh || PyCell_Set(cell, fresh.get()) < 0) fail(s, "counter");
    return;
  }
  emit(s, kCell, cell, nullptr, value);
  reach(s, value);
}

void on_cell_store(PyObject* cell, PyObject* value) {
  Session* s = tls_session;
  count_event(s);
  auto it = s->cells.find(cell);
  if (it == s->cells.end()) return;
  note_store(s, cell, nullptr, value);
  if (!s->written_cells.insert(cell).second) return;
  it->second = Ref::borrow(PyCell_GET(cell));
}

void on_handled() {
  Session* s = tls_session;
  count_event(s);
  const Ref error = Ref::steal(PyErr_GetHandledException());
  ask(s, "handles", error ? error.get() : Py_None);
}

void on_touch(PyObject* obj, Touch how) {
  Session* s = tls_session;
  count_event(s);
  ErrorGuard error;
  if (how == Touch::kFormat && tracked(s, obj)) return;
  if (how == Touch::kMatch && is_heap(Py_TYPE(obj))) {
    // Whether it is a sequence or a mapping is said by flags of its class, which registering it
    // sets.
    auto* cls = reinterpret_cast<PyObject*>(Py_TYPE(obj));
    static PyObject* const flags = PyUnicode_InternFromString("__flags__");
    if (flags != nullptr && first_time(s, kAttrC, cls, flags)) ask(s, "matched", cls);
  }
  if (how == Touch::kWith) ask(s, "entered", obj);
  // The keys of a dict, `**kwargs` too, were relied on when they were put there; its values are
  // passed on.
  if (((how == Touch::kUnpack || how == Touch::kExtend) &&
       (is_sequence(obj) || PyDict_CheckExact(obj))) ||
      (how == Touch::kIter && passes_elements_on(s, obj)))
    touch_kept(s, obj, false);
  else
    touch(s, obj, how == Touch::kCompare || how == Touch::kFormat);
}

void on_truth(PyObject* obj) {
  Session* s = tls_session;
  count_event(s);
  if (PyDict_CheckExact(obj) && known_outside(s, obj)) {
    ErrorGuard error;
    if (read_keys(s, obj)) return;
  }
  if (tracked(s, obj)) {
    ErrorGuard error;
    ask(s, "truth", obj);
    return;
  }
  if (is_leaf(obj)) return;
  ErrorGuard error;
  // How many elements there are decides, whatever numbers they are.
  if (read_length(s, obj)) return;
  if (is_sequence(obj) || PyDict_CheckExact(obj))
    touch_kept(s, obj, false);
  else
    touch(s, obj, false);
}

// A tensor and an array: torch gives it to numpy, which asks the tensor for its data where nobody
// sees it.
static void array_operation(PyObject* a, PyObject* b) {
  if (is_tensor(a) == is_tensor(b)) return;
  PyObject* other = is_tensor(a) ? b : a;
  if (is_leaf(other) || !PyObject_CheckBuffer(other)) return;
  ErrorGuard error;
  ask(tls_session, "array_operation", other);
}

// Whether a text formats what another call may have another one of: tensors, followed values.
static bool formats(Session* s, PyObject* text, PyObject* given) {
  if (!PyUnicode_CheckExact(text)) return false;
  if (is_tensor(given)) return true;
  if (!PyTuple_CheckExact(given)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i)
    if (PyObject* v = PyTuple_GET_ITEM(given, i); is_tensor(v) || tracked(s, v)) return true;
  return false;
}

Before on_binary_pre(int op, PyObject* a, PyObject* b) {
  constexpr int kRemainder = 6;  // NB_REMAINDER
  if (Session* s = tls_session; op == kRemainder && formats(s, a, b)) {
    count_event(s);
    PauseGuard pause;
    const Before before{PyObject_CallMethod(s->handler.get(), "percent", "OO", a, b), true,
                        kPassedOn};
    if (before.result != g_absent) return before;
    Py_DECREF(before.result);
  }
  const bool text = PyUnicode_Check(a) || PyBytes_Check(a);
  operands_pre(a, b, text);
  array_operation(a, b);
  // Text formatting, a dict and an array compute with what methods of the program answer.
  Before before;
  if (text || computes(a) || computes(b)) before.use = kComputed;
  return before;
}

Before on_compare_pre(int op, PyObject* a, PyObject* b) {
  Session* s = tls_session;
  // Numbers of the run in tuples and lists are compared one by one, each with what it meets.
  if ((op == Py_EQ || op == Py_NE) &&
      ((PyTuple_Check(a) && PyTuple_Check(b)) || (PyList_Check(a) && PyList_Check(b))) &&
      (has_tracked(s, a) || has_tracked(s, b))) {
    ErrorGuard error;
    if (ask(s, "compare_items", a, b).get() == Py_True) {
      count_event(s);
      touch_kept(s, a, true);
      touch_kept(s, b, true);
      return {};
    }
  }
  operands_pre(a, b, true);
  array_operation(a, b);
  Before before;
  if (!(compares_in_python(a, op) && compares_in_python(b, op)))
    before.use = kComputed;
  return before;
}

PyObject* on_binary(int op, PyObject* a, PyObject* b, PyObject* result) {
  return operated("binary", op, a, b, result);
}

PyObject* on_compare(int op, PyObject* a, PyObject* b, PyObject* result) {
  return operated("compare", op, a, b, result);
}

bool on_identity(PyObject* a, PyObject* b) {
  Session* s = tls_session;
  count_event(s);
  if (!tracked(s, a) && !tracked(s, b)) return false;
  ErrorGuard error;
  rely_on(s, a);
  rely_on(s, b);
  // What is tracked is a copy; the interpreter keeps one object for each of these numbers.
  constexpr long kFirst = -5, kLast = 256;
  if (PyLong_CheckExact(a)) {
    int overflow = 0;
    const long value = PyLong_AsLongAndOverflow(a, &overflow);
    if (overflow == 0 && value >= kFirst && value <= kLast)
      return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  }
  if (a == b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (!PyFloat_CheckExact(a) && !PyLong_CheckExact(a) && !PyUnicode_CheckExact(a)) return false;
  // One number at two places has a copy for each, and so has a text.
  return ask(s, "same_number", a, b).get() == Py_True;
}

void on_raised(PyObject* a, PyObject* b) {
  Session* s = tls_session;
  const bool warning = PyErr_ExceptionMatches(PyExc_Warning) != 0;
  if (s->tracked.empty() && !warning) return;
  ErrorGuard error;
  if (warning) ask(s, "warning_raised", a);
  for (PyObject* v : {a, b})
    if (v != nullptr && !is_tensor(v)) rely_on(s, v);
}

PyObject* on_unary(int op, PyObject* a, PyObject* result) {
  Session* s = tls_session;
  count_event(s);
  if (!is_leaf(a)) {
    ErrorGuard error;
    AfterGuard after(s);
    read_protocols(s, Py_TYPE(a));
  }
  // The truth of a tracked value was checked when it was taken.
  if (result == nullptr || PyBool_Check(result) || !tracked(s, a)) return result;
  return derive(s, "unary", op, a, nullptr, result);
}

void on_iter(PyObject* obj, PyObject* iterator) {
  (void)obj;
  (void)iterator;
}

PyObject* on_next(PyObject* iterator, PyObject* value) {
  (void)iterator;
  if (value == nullptr) return value;
  ErrorGuard error;
  shown(tls_session, value);
  return value;
}

PyObject* on_format(PyObject* value, PyObject* spec, int conversion, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || s->tracked.empty()) return result;
  if (tracked(s, spec)) {
    ErrorGuard error;
    rely_on(s, spec);
  }
  return tracked(s, value) ? derive(s, "format", conversion, value, spec, result) : result;
}

PyObject* on_build_string(PyObject* const* parts, Py_ssize_t n, PyObject* result) {
  Session* s = tls_session;
  if (result == nullptr || s->tracked.empty()) return result;
  bool any = false;
  for (Py_ssize_t i = 0; i < n; ++i) any = any || tracked(s, parts[i]);
  if (!any) return result;
  const Ref tuple = Ref::steal(PyTuple_New(n));
  if (!tuple) {
    fail(s, "build_string");
    return result;
  }
  for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(parts[i]));
  return derive(s, "join", 0, tuple.get(), nullptr, result);
}

void on_make_function(PyObject* func) {
  Session* s = tls_session;
  s->made.insert(func);
  // Its builtins are what its globals say now.
  static PyObject* const key = PyUnicode_InternFromString("__builtins__");
  PyObject* globals = reinterpret_cast<PyFunctionObject*>(func)->func_globals;
  if (key == nullptr || globals == nullptr || !PyDict_CheckExact(globals)) return;
  ErrorGuard error;
  s->outside.add(globals);
  read_dict(s, globals, key, PyDict_GetItemWithError(globals, key));
}

void read_builtin(Session* s, PyObject* name) {
  PyObject* builtins = PyEval_GetBuiltins();
  if (builtins == nullptr || name == nullptr || !PyDict_Check(builtins)) return;
  s->outside.add(builtins);
  read_dict(s, builtins, name, PyDict_GetItemWithError(builtins, name));
}

void on_import(PyObject* module, PyObject* name) {
  Session* s = tls_session;
  ErrorGuard error;
  PyObject* modules = PyImport_GetModuleDict();
  if (modules == nullptr) return;
  static PyObject* const importer = PyUnicode_InternFromString("__import__");
  read_builtin(s, importer);
  auto read = [&](PyObject* key) {
    if (key == nullptr || item_or_null(modules, key) != module) return false;
    s->outside.add(modules);
    read_dict(s, modules, key, module);
    return true;
  };
  // The outermost package of a dotted name; relative names are what the module says.
  Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
  const Ref first = Ref::steal(dot > 0 ? PyUnicode_Substring(name, 0, dot) : nullptr);
  const Ref own = Ref::steal(PyModule_Check(module) ? PyModule_GetNameObject(module) : nullptr);
  bool known = read(name);
  PyObject* whole = dot > 0 && !known ? item_or_null(modules, name) : nullptr;
  if (whole != nullptr) {
    s->outside.add(modules);
    read_dict(s, modules, name, whole);
  }
  known = known || read(first.get()) || read(own.get());
  PyErr_Clear();  // a module without a name
  if (!known || !PyModule_Check(module)) reach(s, module);
}

}  // namespace magpy
