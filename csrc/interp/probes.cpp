// See probes.h.  Every probe is called by twins only, with arguments that
// magpy/instrument/rewrite.py put on the stack; so the number and the types of the arguments are
// not checked again.  The order of the arguments is the one that a single SWAP below the operands
// gives: for operands [a, b, c] on the stack (c on top) a probe is called with (b, c, a).
#include "probes.h"

#include "compat.h"
#include "errors.h"
#include "frame_eval.h"
#include "iterators.h"
#include "looks.h"
#include "session.h"

namespace magpy {
namespace {

using Args = PyObject* const*;

int as_int(PyObject* o) { return static_cast<int>(PyLong_AsLong(o)); }
PyObject* none_or_null(int err) { return err < 0 ? nullptr : Py_NewRef(Py_None); }
compat::Frame* caller() { return compat::current_frame(PyThreadState_Get()); }

// ---- attributes ----

PyObject* call(PyObject* f, Args args, Py_ssize_t npos, size_t flag, PyObject* kwnames);

// The getter of a property, called like any other function, and what stands in for it where it has
// no such attribute.
PyObject* call_getter(PyObject* getter, PyObject* obj, PyObject* name) {
  PyObject* value = call(getter, &obj, 1, 0, nullptr);
  if (value != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  static PyObject* const hook = PyUnicode_InternFromString("__getattr__");
  PyTypeObject* t = Py_TYPE(obj);
  PyObject* f = hook ? _PyType_Lookup(t, hook) : nullptr;
  if (f == nullptr) return nullptr;
  PyErr_Clear();
  descrgetfunc bind = Py_TYPE(f)->tp_descr_get;
  const Ref bound =
      bind != nullptr ? Ref::steal(bind(f, obj, reinterpret_cast<PyObject*>(t))) : Ref::borrow(f);
  return bound ? call(bound.get(), &name, 1, 0, nullptr) : nullptr;
}

// Whether the load of an attribute has shown what the object has: other exceptions are raised by
// frames, or by C code that looks it up.
bool tells(PyObject* obj, PyObject* value) {
  return value != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) || is_looked_up_by_c(obj);
}

PyObject* attr_load(PyObject* obj, PyObject* name) {
  if (const Ref getter = active() ? on_getter(obj, name) : Ref()) {
    PyObject* value = call_getter(getter.get(), obj, name);
    return active() && tells(obj, value) ? on_attr_load(obj, name, value, getter.get()) : value;
  }
  PyObject* value = PyObject_GetAttr(obj, name);
  if (active() && tells(obj, value)) return on_attr_load(obj, name, value);
  return value;
}

// (obj, name)
PyObject* probe_attr_load(PyObject*, Args a, size_t, PyObject*) { return attr_load(a[0], a[1]); }

// (obj, value, name)
PyObject* probe_attr_store(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_attr_store(a[0], a[2], a[1]);
  return none_or_null(PyObject_SetAttr(a[0], a[2], a[1]));
}

// (obj, name)
PyObject* probe_attr_delete(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_attr_store(a[0], a[1], nullptr);
  return none_or_null(PyObject_SetAttr(a[0], a[1], nullptr));
}

// ---- names ----

// (value, name)
PyObject* probe_global_load(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    compat::Frame* f = caller();
    return on_global_load(f->f_globals, f->f_builtins, a[1], Py_NewRef(a[0]));
  }
  return Py_NewRef(a[0]);
}

// (name): the name is about to be looked up, perhaps in vain.
PyObject* probe_global_access(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    compat::Frame* f = caller();
    on_global_access(f->f_globals, f->f_builtins, a[0]);
  }
  Py_RETURN_NONE;
}

// (name)
PyObject* probe_global_store(PyObject*, Args a, size_t nargsf, PyObject*) {
  // With a value on the stack: (value, name), and the value is given back.
  const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (active()) on_global_store(caller()->f_globals, a[n - 1], n == 2 ? a[0] : nullptr);
  return Py_NewRef(n == 2 ? a[0] : Py_None);
}

// (name)
PyObject* probe_name_access(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    PyObject* locals = caller()->f_locals;
    if (locals != nullptr) on_name_access(locals, a[0]);
    const bool local =
        locals != nullptr && PyDict_CheckExact(locals) && PyDict_Contains(locals, a[0]) != 0;
    if (!local) on_global_access(caller()->f_globals, caller()->f_builtins, a[0]);
  }
  Py_RETURN_NONE;
}

// (value, name): a name of a class body or of exec'd code gave value; tells where from.
PyObject* probe_name_load(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    compat::Frame* f = caller();
    // Looking into a mapping of the program's own class again could be noticed.
    bool global = f->f_locals == nullptr || f->f_locals == f->f_globals;
    if (!global && PyDict_CheckExact(f->f_locals))
      global = item_or_null(f->f_locals, a[1]) == nullptr;
    if (global) return on_global_load(f->f_globals, f->f_builtins, a[1], Py_NewRef(a[0]));
  }
  return Py_NewRef(a[0]);
}

// (cell)
PyObject* probe_cell_load(PyObject*, Args a, size_t, PyObject*) {
  if (active() && PyCell_Check(a[0])) {
    const Ref value = Ref::steal(PyCell_Get(a[0]));
    on_cell_load(a[0], value.get());
  }
  Py_RETURN_NONE;
}

// (cell[, value])
PyObject* probe_cell_store(PyObject*, Args a, size_t n, PyObject*) {
  if (active()) on_cell_store(a[0], n > 1 ? a[1] : nullptr);
  Py_RETURN_NONE;
}

// ---- items ----

PyObject* item_load(PyObject* obj, PyObject* key) {
  if (!active()) return PyObject_GetItem(obj, key);
  PyObject* value;
  bool made;
  {
    ToCScope given(on_item_load_pre(obj, key));
    made = makes_item(obj, key);
    value = PyObject_GetItem(obj, key);
  }
  if (!active()) return value;
  if (value == nullptr) on_raised(obj, key);
  PyObject* given = on_item_load(obj, key, value, made);
  return value == nullptr ? nullptr : given;
}

PyObject* item_store(PyObject* obj, PyObject* key, PyObject* value) {
  auto store = [=] {
    return none_or_null(value != nullptr ? PyObject_SetItem(obj, key, value)
                                         : PyObject_DelItem(obj, key));
  };
  if (!active()) return store();
  ToCScope given(on_item_store(obj, key, value));
  return store();
}

// (key, obj)
PyObject* probe_item_load(PyObject*, Args a, size_t, PyObject*) { return item_load(a[1], a[0]); }
// (obj, key, value)
PyObject* probe_item_store(PyObject*, Args a, size_t, PyObject*) {
  return item_store(a[0], a[1], a[2]);
}
// (key, obj)
PyObject* probe_item_delete(PyObject*, Args a, size_t, PyObject*) {
  return item_store(a[1], a[0], nullptr);
}

// (start, stop, obj)
PyObject* probe_slice_load(PyObject*, Args a, size_t, PyObject*) {
  const Ref slice = Ref::steal(PySlice_New(a[0], a[1], nullptr));
  return slice ? item_load(a[2], slice.get()) : nullptr;
}

// (obj, start, stop, value)
PyObject* probe_slice_store(PyObject*, Args a, size_t, PyObject*) {
  const Ref slice = Ref::steal(PySlice_New(a[1], a[2], nullptr));
  return slice ? item_store(a[0], slice.get(), a[3]) : nullptr;
}

PyObject* probe_compare(PyObject*, Args a, size_t, PyObject*);

// `item in container`, as `item is x or item == x or ...`: 1, 0, or -1 with an exception set.
int contains_by_comparisons(PyObject* container, PyObject* item) {
  const Ref equals = Ref::steal(PyLong_FromLong(Py_EQ));
  if (!equals) return -1;
  int outcome = 0;
  for (Py_ssize_t i = 0; outcome == 0 && i < PySequence_Fast_GET_SIZE(container); ++i) {
    PyObject* pair[] = {PySequence_Fast_GET_ITEM(container, i), item, equals.get()};
    if (pair[0] == item) return 1;
    const Ref equal = Ref::steal(probe_compare(nullptr, pair, 3, nullptr));
    if (equal && !PyBool_Check(equal.get()) && active()) on_truth(equal.get());
    outcome = equal ? PyObject_IsTrue(equal.get()) : -1;
  }
  return outcome;
}

// (container, item, invert)
PyObject* probe_contains(PyObject*, Args a, size_t, PyObject*) {
  if (active() && compares_numbers(a[0], a[1])) {
    const int outcome = contains_by_comparisons(a[0], a[1]);
    return outcome < 0 ? nullptr : PyBool_FromLong(outcome ^ as_int(a[2]));
  }
  if (active()) on_contains_pre(a[0], a[1]);
  int outcome;
  {
    ToCScope given(kComputed);
    outcome = PySequence_Contains(a[0], a[1]);
  }
  if (outcome < 0) return nullptr;
  if (active()) on_contains(a[0], a[1], outcome);
  return PyBool_FromLong(outcome ^ as_int(a[2]));
}

// ---- operators ----

PyObject* power(PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); }
PyObject* inplace_power(PyObject* x, PyObject* y) { return PyNumber_InPlacePower(x, y, Py_None); }

// Indexed by CPython's NB_* numbers, which are the same on 3.11 to 3.13.
constexpr binaryfunc kBinary[] = {
    PyNumber_Add,
    PyNumber_And,
    PyNumber_FloorDivide,
    PyNumber_Lshift,
    PyNumber_MatrixMultiply,
    PyNumber_Multiply,
    PyNumber_Remainder,
    PyNumber_Or,
    power,
    PyNumber_Rshift,
    PyNumber_Subtract,
    PyNumber_TrueDivide,
    PyNumber_Xor,
    PyNumber_InPlaceAdd,
    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide,
    PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply,
    PyNumber_InPlaceRemainder,
    PyNumber_InPlaceOr,
    inplace_power,
    PyNumber_InPlaceRshift,
    PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceXor,
};

// (b, a, op)
PyObject* probe_binary(PyObject*, Args a, size_t, PyObject*) {
  const int op = as_int(a[2]);
  if (!active()) return kBinary[op](a[1], a[0]);
  const Before before = on_binary_pre(op, a[1], a[0]);
  if (before.performed) {
    if (before.result == nullptr && active()) on_raised(a[1], a[0]);
    return before.result;
  }
  PyObject* result;
  {
    ToCScope given(before.use);
    result = kBinary[op](a[1], a[0]);
  }
  if (!active()) return result;
  if (result == nullptr) on_raised(a[1], a[0]);
  return on_binary(op, a[1], a[0], result);
}

// (b, a, op)
PyObject* probe_compare(PyObject*, Args a, size_t, PyObject*) {
  const int op = as_int(a[2]);
  if (!active()) return PyObject_RichCompare(a[1], a[0], op);
  const Before before = on_compare_pre(op, a[1], a[0]);
  PyObject* result;
  {
    ToCScope given(before.use);
    result = PyObject_RichCompare(a[1], a[0], op);
  }
  if (!active()) return result;
  if (result == nullptr) on_raised(a[1], a[0]);
  return on_compare(op, a[1], a[0], result);
}

// (b, a, invert)
PyObject* probe_identity(PyObject*, Args a, size_t, PyObject*) {
  bool same = a[0] == a[1];
  const bool followed =
      PyLong_CheckExact(a[0]) || PyFloat_CheckExact(a[0]) || PyUnicode_CheckExact(a[0]);
  if (!same && followed && Py_TYPE(a[0]) == Py_TYPE(a[1]) && active())
    same = on_identity(a[1], a[0]);
  return PyBool_FromLong(same != (as_int(a[2]) != 0));
}

// (a, op)
PyObject* probe_unary(PyObject*, Args a, size_t, PyObject*) {
  const int op = as_int(a[1]);
  PyObject* result = nullptr;
  switch (op) {
    case kUnaryNegative: result = PyNumber_Negative(a[0]); break;
    case kUnaryPositive: result = PyNumber_Positive(a[0]); break;
    case kUnaryInvert: result = PyNumber_Invert(a[0]); break;
    default: {
      if (active()) on_truth(a[0]);
      int truth = PyObject_IsTrue(a[0]);
      if (truth >= 0) result = PyBool_FromLong(!truth);
    }
  }
  if (!active()) return result;
  if (result == nullptr) on_raised(a[0], nullptr);
  return on_unary(op, a[0], result);
}

// (value): the truth of value is about to be taken; gives value back.
PyObject* probe_truth(PyObject*, Args a, size_t, PyObject*) {
  if (!PyBool_Check(a[0]) && active()) on_truth(a[0]);
  return Py_NewRef(a[0]);
}

// ---- looking into an object as a whole ----

// (value): gives value back.
template <Touch how>
PyObject* probe_touch(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_touch(a[0], how);
  return Py_NewRef(a[0]);
}

// (mapping): a dict display or a call takes over its items; gives it back.
PyObject* probe_merge(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    on_touch(a[0], Touch::kExtend);
    ToCScope::set(kComputed);
  }
  return Py_NewRef(a[0]);
}

// (anything): what is being handled is raised again.
PyObject* probe_handled(PyObject*, Args, size_t, PyObject*) {
  if (active()) on_handled();
  Py_RETURN_NONE;
}

// (reason): no probe reports what the instruction after it does, and the session that runs it is
// refused.
PyObject* probe_unsupported(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    const char* reason = PyUnicode_AsUTF8(a[0]);
    if (reason == nullptr) return nullptr;
    on_uninstrumented(nullptr, reason);
  }
  Py_RETURN_NONE;
}

// (anything): the items are taken over.
PyObject* probe_merged(PyObject*, Args, size_t, PyObject*) {
  ToCScope::set(kPassedOn);
  Py_RETURN_NONE;
}

// Holds an iterator between probe_iter and the GET_ITER after it, whose iter() gives that very
// iterator.  GET_ITER stays in the twin because a debugger that moves a frame to another line finds
// the loops by it.
struct IteratorBox {
  PyObject_HEAD PyObject* iterator;  // owned; taken by iter()
};

void iterator_box_dealloc(PyObject* self) {
  Py_XDECREF(reinterpret_cast<IteratorBox*>(self)->iterator);
  PyObject_Free(self);
}

PyObject* iterator_box_iter(PyObject* self) {
  PyObject* iterator = reinterpret_cast<IteratorBox*>(self)->iterator;
  reinterpret_cast<IteratorBox*>(self)->iterator = nullptr;
  if (iterator == nullptr) PyErr_SetString(PyExc_SystemError, "magpy: an iterator was taken twice");
  return iterator;
}

PyTypeObject iterator_box_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// (obj)
PyObject* probe_iter(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_touch(a[0], Touch::kIter);
  Ref iterator = Ref::steal(PyObject_GetIter(a[0]));
  if (!iterator) return nullptr;
  if (active()) on_iter(a[0], iterator.get());
  auto* box = PyObject_New(IteratorBox, &iterator_box_type);
  if (box == nullptr) return nullptr;
  box->iterator = iterator.release();
  return reinterpret_cast<PyObject*>(box);
}

// (value, iterator)
PyObject* probe_next(PyObject*, Args a, size_t, PyObject*) {
  if (!active()) return Py_NewRef(a[0]);
  return on_next(a[1], Py_NewRef(a[0]));
}

// ---- calls ----

// After a call: the frames below it were seen only if nobody took the hook away.
void check_hook() {
  if (active() && !hook_in_charge())
    on_uninstrumented(compat::frame_code(caller()),
                      "another frame-evaluation hook replaced magpy's");
}

PyObject* call(PyObject* f, Args args, Py_ssize_t npos, size_t flag, PyObject* kwnames) {
  if (!active()) return PyObject_Vectorcall(f, args, npos | flag, kwnames);
  const Before before = on_call_pre(f, args, npos, kwnames);
  PyObject* result = before.result;
  if (!before.performed) {
    ToCScope given(before.use);
    result = call_reporting(f, args, npos | flag, kwnames);
  }
  check_hook();
  if (!active()) return result;
  if (result != nullptr) return on_call(f, args, npos, kwnames, result);
  on_call_raised(f, args, npos, kwnames);
  return nullptr;
}

// Calls a Python function with items[1:] and lets its frame take the arguments over, as the
// interpreter's own call does: what the callee drops dies then, not when the call returns. items[0]
// is the function.
PyObject* call_function(PyObject** items, Py_ssize_t npos, PyObject* kwnames) {
  Handover handover = {items[0], items + 1,
                       npos + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames))};
  Handover* outer = tls_handover;
  tls_handover = &handover;
  const Ref f = Ref::borrow(items[0]);
  PyObject* result =
      PyObject_Vectorcall(f.get(), items + 1, npos | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  tls_handover = outer;
  check_hook();
  // Where it raises, it may not have taken its arguments: then no frame tells of it.
  if (result == nullptr && active()) on_call_raised(f.get(), nullptr, 0, nullptr);
  return result;
}

// The operands of a call as the interpreter lays them out on the stack, taken by BUILD_TUPLE: two
// slots, of which one may be NULL, then the arguments.  The tuple is ours alone and must be
// invisible to the collector: it may hold NULL, and a callee may borrow the slot before its first
// argument.
PyObject* call_packed(PyObject* packed, PyObject* kwnames, Py_ssize_t nitems) {
  if (PyObject_GC_IsTracked(packed)) PyObject_GC_UnTrack(packed);
  PyObject** item = &PyTuple_GET_ITEM(packed, 0);
  Py_ssize_t nargs = nitems - 2 - (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
#if PY_VERSION_HEX < 0x030D0000
  if (item[0] == nullptr) {  // (NULL, callable) as later versions have it: (callable, NULL)
    item[0] = item[1];
    item[1] = nullptr;
  }
#endif
  PyObject* f = item[0];
  PyObject** args = item + (item[1] != nullptr ? 1 : 2);
  if (item[1] != nullptr) ++nargs;
  const bool method = Py_IS_TYPE(f, &PyMethod_Type) && item[1] == nullptr &&
                      PyFunction_Check(PyMethod_GET_FUNCTION(f));
  if (!method && !PyFunction_Check(f))
    return call(f, args, nargs, PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  ToC use = kPassedOn;
  if (active()) {
    const Before before = on_call_pre(f, args, nargs, kwnames);
    use = before.use;
    if (before.performed) {
      if (!active()) return before.result;
      if (before.result != nullptr) return on_call(f, args, nargs, kwnames, before.result);
      on_call_raised(f, args, nargs, kwnames);
      return nullptr;
    }
  }
  // The session has no use for the end of a Python function's call: its frame reports what it does.
  if (method) {
    PyObject* function = Py_NewRef(PyMethod_GET_FUNCTION(f));
    item[1] = Py_NewRef(PyMethod_GET_SELF(f));
    item[0] = function;
    Py_DECREF(f);
    ++nargs;
  } else if (item[1] == nullptr) {
    item[1] = item[0];
    item[0] = nullptr;
    ++item;
  }
  if (use == kPassedOn) return call_function(item, nargs, kwnames);
  ToCScope given(use);
  return call_function(item, nargs, kwnames);
}

// (packed) or (packed, kwnames)
PyObject* probe_call(PyObject*, Args a, size_t nargsf, PyObject*) {
  return call_packed(a[0], PyVectorcall_NARGS(nargsf) == 2 ? a[1] : nullptr,
                     PyTuple_GET_SIZE(a[0]));
}

// (packed): the last item is kwnames.
PyObject* probe_call_kw(PyObject*, Args a, size_t, PyObject*) {
  const Py_ssize_t n = PyTuple_GET_SIZE(a[0]);
  return call_packed(a[0], PyTuple_GET_ITEM(a[0], n - 1), n - 1);
}

// Performs f(*args, **kwargs) and reports it with the arguments laid out one after the other.
PyObject* call_flat(PyObject* f, PyObject* args, PyObject* kwargs) {
  if (!active()) return PyObject_Call(f, args, kwargs);
  const Py_ssize_t npos = PyTuple_GET_SIZE(args);
  const Py_ssize_t nkw = kwargs == nullptr ? 0 : PyDict_GET_SIZE(kwargs);
  // Keeps what is reported alive whatever the callee does to its arguments.
  const Ref holds_flat = Ref::steal(PyTuple_New(npos + nkw)),
            holds_names = Ref::steal(nkw > 0 ? PyTuple_New(nkw) : nullptr);
  PyObject *flat = holds_flat.get(), *kwnames = holds_names.get();
  if (flat == nullptr || (nkw > 0 && kwnames == nullptr)) return nullptr;
  for (Py_ssize_t i = 0; i < npos; ++i)
    PyTuple_SET_ITEM(flat, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  bool strings = true;
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  for (Py_ssize_t i = 0; i < nkw && PyDict_Next(kwargs, &pos, &key, &value); ++i) {
    strings = strings && PyUnicode_Check(key);
    PyTuple_SET_ITEM(kwnames, i, Py_NewRef(key));
    PyTuple_SET_ITEM(flat, npos + i, Py_NewRef(value));
  }
  PyObject* result = nullptr;
  Args items = &PyTuple_GET_ITEM(flat, 0);
  if (!strings) {
    // The callee refuses it, or (none known) takes it in its own way.
    result = PyObject_Call(f, args, kwargs);
  } else {
    const Before before = on_call_pre(f, items, npos, kwnames);
    result = before.result;
    if (!before.performed) {
      ToCScope given(before.use);
      result = calls_its_argument(f) ? call_reporting(f, items, npos, kwnames)
                                     : PyObject_Call(f, args, kwargs);
    }
    check_hook();
    if (active()) {
      if (result != nullptr) {
        result = on_call(f, items, npos, kwnames, result);
      } else {
        on_call_raised(f, items, npos, kwnames);
      }
    }
  }
  return result;
}

#if PY_VERSION_HEX >= 0x030C0000
// f(*args, **kwargs) of a Python function whose keys are strings: since 3.12 the frame takes the
// arguments over, as in a plain call.  Takes `args` and `kwargs` from `packed` as soon as they are
// laid out.
PyObject* call_function_ex(PyObject* packed, PyObject* f, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t npos = PyTuple_GET_SIZE(args);
  const Py_ssize_t nkw = kwargs == nullptr ? 0 : PyDict_GET_SIZE(kwargs);
  const Ref holds_flat = Ref::steal(PyTuple_New(npos + nkw + 2)),
            holds_names = Ref::steal(nkw > 0 ? PyTuple_New(nkw) : nullptr);
  PyObject *flat = holds_flat.get(), *kwnames = holds_names.get();
  if (flat == nullptr || (nkw > 0 && kwnames == nullptr)) return nullptr;
  PyTuple_SET_ITEM(flat, 0, Py_NewRef(f));
  for (Py_ssize_t i = 0; i < npos; ++i)
    PyTuple_SET_ITEM(flat, 2 + i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  for (Py_ssize_t i = 0; i < nkw && PyDict_Next(kwargs, &pos, &key, &value); ++i) {
    PyTuple_SET_ITEM(kwnames, i, Py_NewRef(key));
    PyTuple_SET_ITEM(flat, 2 + npos + i, Py_NewRef(value));
  }
  for (Py_ssize_t i = 2; i < PyTuple_GET_SIZE(packed); ++i) Py_CLEAR(PyTuple_GET_ITEM(packed, i));
  return call_packed(flat, kwnames, npos + nkw + 2);
}

bool string_keys(PyObject* dict) {
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  while (dict != nullptr && PyDict_Next(dict, &pos, &key, &value)) {
    if (!PyUnicode_Check(key)) return false;
  }
  return true;
}
#endif

// (packed): [NULL, f, args] or [NULL, f, args, kwargs] (3.13: f before NULL)
PyObject* probe_call_ex(PyObject*, Args a, size_t, PyObject*) {
  PyObject* packed = a[0];
  if (PyObject_GC_IsTracked(packed)) PyObject_GC_UnTrack(packed);
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* f = PyTuple_GET_ITEM(packed, 0);
#else
  PyObject* f = PyTuple_GET_ITEM(packed, 1);
#endif
  PyObject* given = PyTuple_GET_ITEM(packed, 2);
  PyObject* kwargs = PyTuple_GET_SIZE(packed) == 4 ? PyTuple_GET_ITEM(packed, 3) : nullptr;
  if (!PyTuple_CheckExact(given)) {
    if (active()) on_touch(given, Touch::kExtend);
    if (Py_TYPE(given)->tp_iter == nullptr && !PySequence_Check(given)) {
      const Ref name = Ref::steal(_PyObject_FunctionStr(f));
      if (!name) return nullptr;
      return PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s",
                          name.get(), Py_TYPE(given)->tp_name);
    }
    PyObject* args = PySequence_Tuple(given);
    if (args == nullptr) return nullptr;
    PyTuple_SET_ITEM(packed, 2, args);
    Py_DECREF(given);
    given = args;
  }
#if PY_VERSION_HEX >= 0x030C0000
  if (PyFunction_Check(f) && string_keys(kwargs)) return call_function_ex(packed, f, given, kwargs);
#endif
  return call_flat(f, given, kwargs);
}

// (class, self, super, name, explicit): super().name of 3.12+, with `explicit` when the program
// wrote super(class, self).
PyObject* probe_super_attr(PyObject*, Args a, size_t, PyObject*) {
  PyObject* pair[] = {nullptr, a[0], a[1]};
  const Ref super = Ref::steal(
      call(a[2], pair + 1, a[4] == Py_True ? 2 : 0, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  return super ? attr_load(super.get(), a[3]) : nullptr;
}

// ---- displays ----

// (key or element): it is about to choose its place in a dict or a set; gives it back.
PyObject* probe_hashed(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_hashed(a[0]);
  return Py_NewRef(a[0]);
}

// (elements)
PyObject* probe_build_set(PyObject*, Args a, size_t, PyObject*) {
  Ref set = Ref::steal(PySet_New(nullptr));
  for (Py_ssize_t i = 0; set && i < PyTuple_GET_SIZE(a[0]); ++i) {
    if (active()) on_hashed(PyTuple_GET_ITEM(a[0], i));
    if (PySet_Add(set.get(), PyTuple_GET_ITEM(a[0], i)) < 0) return nullptr;
  }
  return set.release();
}

// (keys and values in turn)
PyObject* probe_build_map(PyObject*, Args a, size_t, PyObject*) {
  Ref dict = Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; dict && i + 1 < PyTuple_GET_SIZE(a[0]); i += 2) {
    if (active()) on_hashed(PyTuple_GET_ITEM(a[0], i));
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(a[0], i), PyTuple_GET_ITEM(a[0], i + 1)) < 0)
      return nullptr;
  }
  return dict.release();
}

// (iterable, set): gives the set back.
PyObject* probe_set_update(PyObject*, Args a, size_t, PyObject*) {
  if (active()) {
    on_touch(a[0], Touch::kExtend);
    on_hashed(a[0]);
  }
  ToCScope given(kComputed);
  const Ref done = Ref::steal(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(&PySet_Type), "update", "OO", a[1], a[0]));
  return done ? Py_NewRef(a[1]) : nullptr;
}

// ---- text ----

PyObject* converted(PyObject* value, int conversion) {
  switch (conversion) {
    case kStr: return PyObject_Str(value);
    case kRepr: return PyObject_Repr(value);
    case kAscii: return PyObject_ASCII(value);
    default: return Py_NewRef(value);
  }
}

PyObject* convert(PyObject* value, int conversion) {
  if (conversion == kNone || !active()) return converted(value, conversion);
  ToCScope given(text_in_python(value, conversion) ? kPassedOn : kComputed);
  return converted(value, conversion);
}

PyObject* format_object(PyObject* value, PyObject* spec) {
  if (!active()) return PyObject_Format(value, spec);
  ToCScope given(text_in_python(value, kNone) ? kPassedOn : kComputed);
  return PyObject_Format(value, spec);
}

// A tuple (torch.Size, too), list or dict is written by C code, which reads what is in it: that is
// done as the program's own `str(value)` or `repr(value)`.
bool is_written_in_c(PyObject* value, int conversion) {
  if (!active() || conversion == kAscii) return false;
  const bool tuple = PyTuple_Check(value) && !PyType_HasFeature(Py_TYPE(value), Py_TPFLAGS_HEAPTYPE);
  return tuple || PyList_CheckExact(value) || PyDict_CheckExact(value);
}

// The built-in `repr`, whatever the program has put at its name since magpy was imported.
PyObject* builtin_repr = nullptr;

PyObject* written_in_c(PyObject* value, int conversion) {
  PyObject* function =
      conversion == kRepr ? builtin_repr : reinterpret_cast<PyObject*>(&PyUnicode_Type);
  const Ref args = Ref::steal(PyTuple_Pack(1, value));
  const Ref kwargs = Ref::steal(PyDict_New());
  return args && kwargs ? probed_call(function, args.get(), kwargs.get()) : nullptr;
}

PyObject* format(PyObject* value, PyObject* spec, int conversion) {
  if (is_written_in_c(value, conversion) && (spec == nullptr || conversion != kNone)) {
    const Ref text = Ref::steal(written_in_c(value, conversion));
    return text && spec != nullptr ? format(text.get(), spec, kNone) : Py_XNewRef(text.get());
  }
  if (active()) on_touch(value, Touch::kFormat);
  Ref result = Ref::steal(convert(value, conversion));
  if (!result) return nullptr;
  if (spec != nullptr && result.get() != value && active()) {
    // Two steps: what the conversion gave is formatted.
    result = Ref::steal(on_format(value, nullptr, conversion, result.release()));
    PyObject* text = format_object(result.get(), spec);
    if (text == nullptr && active()) on_raised(result.get(), spec);
    return text != nullptr && active() ? on_format(result.get(), spec, 0, text) : text;
  }
  if (spec != nullptr || !PyUnicode_CheckExact(result.get())) {
    result = Ref::steal(format_object(result.get(), spec));
    if (!result && active()) on_raised(value, spec);
    if (!result) return nullptr;
  }
  return active() ? on_format(value, spec, conversion, result.release()) : result.release();
}

// (value, conversion)
PyObject* probe_format(PyObject*, Args a, size_t, PyObject*) {
  return format(a[0], nullptr, as_int(a[1]));
}
// (spec, value, conversion)
PyObject* probe_format_spec(PyObject*, Args a, size_t, PyObject*) {
  return format(a[1], a[0], as_int(a[2]));
}

// (value, conversion): only the conversion (3.13).
PyObject* probe_convert(PyObject*, Args a, size_t, PyObject*) {
  if (is_written_in_c(a[0], as_int(a[1]))) return written_in_c(a[0], as_int(a[1]));
  if (active()) on_touch(a[0], Touch::kFormat);
  PyObject* result = convert(a[0], as_int(a[1]));
  return result != nullptr && active() ? on_format(a[0], nullptr, as_int(a[1]), result) : result;
}

// (parts)
PyObject* probe_build_string(PyObject*, Args a, size_t, PyObject*) {
  static PyObject* empty = PyUnicode_New(0, 0);
  PyObject* result = PyUnicode_Join(empty, a[0]);
  if (result == nullptr || !active()) return result;
  return on_build_string(&PyTuple_GET_ITEM(a[0], 0), PyTuple_GET_SIZE(a[0]), result);
}

// ---- the rest ----

// (function)
PyObject* probe_make_function(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_make_function(a[0]);
  return Py_NewRef(a[0]);
}

// (module, name)
PyObject* probe_import(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_import(a[0], a[1]);
  return Py_NewRef(a[0]);
}

// (value, module, name)
// (module, name): the name is about to be looked up there, perhaps in vain.
PyObject* probe_import_access(PyObject*, Args a, size_t, PyObject*) {
  if (active()) on_import_access(a[0], a[1]);
  Py_RETURN_NONE;
}

PyObject* probe_import_from(PyObject*, Args a, size_t, PyObject*) {
  return active() ? on_attr_load(a[1], a[2], Py_NewRef(a[0])) : Py_NewRef(a[0]);
}

// ---- the probes as objects ----

// A callable of its own type and not a builtin function: the interpreter then neither counts it
// against the recursion limit nor tells a profiler about it.
struct Probe {
  PyObject_HEAD vectorcallfunc vectorcall;
  const char* name;
};

PyObject* probe_repr(PyObject* self) {
  return PyUnicode_FromFormat("<magpy %s>", reinterpret_cast<Probe*>(self)->name);
}

PyTypeObject probe_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_probe(PyObject* module, const char* name, vectorcallfunc function) {
  Probe* probe = PyObject_New(Probe, &probe_type);
  if (probe == nullptr) return -1;
  probe->vectorcall = function;
  probe->name = name;
  return PyModule_AddObjectRef(module, name, Ref::steal(reinterpret_cast<PyObject*>(probe)).get());
}

struct {
  const char* name;
  vectorcallfunc function;
} const probes[] = {
    {"probe_attr_load", probe_attr_load},
    {"probe_attr_store", probe_attr_store},
    {"probe_attr_delete", probe_attr_delete},
    {"probe_global_access", probe_global_access},
    {"probe_global_load", probe_global_load},
    {"probe_global_store", probe_global_store},
    {"probe_name_access", probe_name_access},
    {"probe_name_load", probe_name_load},
    {"probe_cell_load", probe_cell_load},
    {"probe_cell_store", probe_cell_store},
    {"probe_item_load", probe_item_load},
    {"probe_item_store", probe_item_store},
    {"probe_item_delete", probe_item_delete},
    {"probe_slice_load", probe_slice_load},
    {"probe_slice_store", probe_slice_store},
    {"probe_contains", probe_contains},
    {"probe_binary", probe_binary},
    {"probe_compare", probe_compare},
    {"probe_identity", probe_identity},
    {"probe_unary", probe_unary},
    {"probe_truth", probe_truth},
    {"probe_touch_iter", probe_touch<Touch::kIter>},
    {"probe_touch_unpack", probe_touch<Touch::kUnpack>},
    {"probe_touch_extend", probe_touch<Touch::kExtend>},
    {"probe_touch_match", probe_touch<Touch::kMatch>},
    {"probe_touch_with", probe_touch<Touch::kWith>},
    {"probe_merge", probe_merge},
    {"probe_handled", probe_handled},
    {"probe_unsupported", probe_unsupported},
    {"probe_merged", probe_merged},
    {"probe_iter", probe_iter},
    {"probe_next", probe_next},
    {"probe_call", probe_call},
    {"probe_call_kw", probe_call_kw},
    {"probe_call_ex", probe_call_ex},
    {"probe_super_attr", probe_super_attr},
    {"probe_hashed", probe_hashed},
    {"probe_build_set", probe_build_set},
    {"probe_build_map", probe_build_map},
    {"probe_set_update", probe_set_update},
    {"probe_format", probe_format},
    {"probe_format_spec", probe_format_spec},
    {"probe_convert", probe_convert},
    {"probe_build_string", probe_build_string},
    {"probe_make_function", probe_make_function},
    {"probe_import", probe_import},
    {"probe_import_access", probe_import_access},
    {"probe_import_from", probe_import_from},
};

}  // namespace

thread_local Handover* tls_handover = nullptr;

PyObject* probed_call(PyObject* f, PyObject* args, PyObject* kwargs) {
  return call_flat(f, args, kwargs);
}

PyObject* probed_vectorcall(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return call(f, args, PyVectorcall_NARGS(nargsf), nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET,
              kwnames);
}

int init_probes(PyObject* module) {
  probe_type.tp_name = "magpy._interp.Probe";
  probe_type.tp_basicsize = sizeof(Probe);
  probe_type.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  probe_type.tp_vectorcall_offset = offsetof(Probe, vectorcall);
  probe_type.tp_call = PyVectorcall_Call;
  probe_type.tp_repr = probe_repr;
  iterator_box_type.tp_name = "magpy._interp.IteratorBox";
  iterator_box_type.tp_basicsize = sizeof(IteratorBox);
  iterator_box_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  iterator_box_type.tp_dealloc = iterator_box_dealloc;
  iterator_box_type.tp_iter = iterator_box_iter;
  if (PyType_Ready(&probe_type) < 0 || PyType_Ready(&iterator_box_type) < 0) return -1;
  const Ref builtins = Ref::steal(PyImport_ImportModule("builtins"));
  builtin_repr = builtins ? PyObject_GetAttrString(builtins.get(), "repr") : nullptr;
  if (builtin_repr == nullptr) return -1;
  for (const auto& probe : probes) {
    if (add_probe(module, probe.name, probe.function) < 0) return -1;
  }
  return 0;
}

}  // namespace magpy
