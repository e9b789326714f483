// See probes.h.  Every probe is METH_FASTCALL and is called by twins only, with arguments that magpy/capture/instrument.py put
// on the stack; so the number and the types of the arguments are not checked again.  The order of the arguments is the one that
// a single SWAP below the operands gives: for operands [a, b, c] on the stack (c on top) a probe is called with (b, c, a).
#include "probes.h"

#include "compat.h"
#include "session.h"

namespace magpy {
namespace {

using Args = PyObject* const*;

int as_int(PyObject* o) { return static_cast<int>(PyLong_AsLong(o)); }
PyObject* none_or_null(int err) { return err < 0 ? nullptr : Py_NewRef(Py_None); }
compat::Frame* caller() { return compat::current_frame(PyThreadState_Get()); }

// ---- attributes ----

PyObject* attr_load(PyObject* obj, PyObject* name) {
  PyObject* value = PyObject_GetAttr(obj, name);
  if (active() && (value != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError))) on_attr_load(obj, name, value);
  return value;
}

// (obj, name)
PyObject* probe_attr_load(PyObject*, Args a, Py_ssize_t) { return attr_load(a[0], a[1]); }

// (obj, value, name)
PyObject* probe_attr_store(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_attr_store(a[0], a[2], a[1]);
  return none_or_null(PyObject_SetAttr(a[0], a[2], a[1]));
}

// (obj, name)
PyObject* probe_attr_delete(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_attr_store(a[0], a[1], nullptr);
  return none_or_null(PyObject_SetAttr(a[0], a[1], nullptr));
}

// ---- names ----

// (value, name)
PyObject* probe_global_load(PyObject*, Args a, Py_ssize_t) {
  if (active()) {
    compat::Frame* f = caller();
    on_global_load(f->f_globals, f->f_builtins, a[1], a[0]);
  }
  return Py_NewRef(a[0]);
}

// (name)
PyObject* probe_global_store(PyObject*, Args a, Py_ssize_t n) {
  // With a value on the stack: (value, name), and the value is given back.
  if (active()) on_global_store(caller()->f_globals, a[n - 1], n == 2 ? a[0] : nullptr);
  return Py_NewRef(n == 2 ? a[0] : Py_None);
}

// (name)
PyObject* probe_name_access(PyObject*, Args a, Py_ssize_t) {
  if (active()) {
    PyObject* locals = caller()->f_locals;
    if (locals != nullptr) on_name_access(locals, a[0]);
  }
  Py_RETURN_NONE;
}

// (value, name): a name of a class body or of exec'd code gave value; tells where from.
PyObject* probe_name_load(PyObject*, Args a, Py_ssize_t) {
  if (active()) {
    compat::Frame* f = caller();
    // Looking into a mapping of the program's own class again could be noticed.
    bool global = f->f_locals == nullptr || f->f_locals == f->f_globals;
    if (!global && PyDict_CheckExact(f->f_locals)) {
      global = PyDict_GetItemWithError(f->f_locals, a[1]) == nullptr;
      PyErr_Clear();
    }
    if (global) on_global_load(f->f_globals, f->f_builtins, a[1], a[0]);
  }
  return Py_NewRef(a[0]);
}

// (cell)
PyObject* probe_cell_load(PyObject*, Args a, Py_ssize_t) {
  if (active() && PyCell_Check(a[0])) {
    PyObject* value = PyCell_Get(a[0]);
    on_cell_load(a[0], value);
    Py_XDECREF(value);
  }
  Py_RETURN_NONE;
}

// (cell)
PyObject* probe_cell_store(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_cell_store(a[0]);
  Py_RETURN_NONE;
}

// ---- items ----

PyObject* item_load(PyObject* obj, PyObject* key) {
  if (!active()) return PyObject_GetItem(obj, key);
  on_item_load_pre(obj, key);
  PyObject* value = PyObject_GetItem(obj, key);
  if (!active()) return value;
  PyObject* given = on_item_load(obj, key, value);
  return value == nullptr ? nullptr : given;
}

PyObject* item_store(PyObject* obj, PyObject* key, PyObject* value) {
  if (active()) on_item_store(obj, key, value);
  return none_or_null(value != nullptr ? PyObject_SetItem(obj, key, value) : PyObject_DelItem(obj, key));
}

// (key, obj)
PyObject* probe_item_load(PyObject*, Args a, Py_ssize_t) { return item_load(a[1], a[0]); }
// (obj, key, value)
PyObject* probe_item_store(PyObject*, Args a, Py_ssize_t) { return item_store(a[0], a[1], a[2]); }
// (key, obj)
PyObject* probe_item_delete(PyObject*, Args a, Py_ssize_t) { return item_store(a[1], a[0], nullptr); }

// (start, stop, obj)
PyObject* probe_slice_load(PyObject*, Args a, Py_ssize_t) {
  PyObject* slice = PySlice_New(a[0], a[1], nullptr);
  if (slice == nullptr) return nullptr;
  PyObject* value = item_load(a[2], slice);
  Py_DECREF(slice);
  return value;
}

// (obj, start, stop, value)
PyObject* probe_slice_store(PyObject*, Args a, Py_ssize_t) {
  PyObject* slice = PySlice_New(a[1], a[2], nullptr);
  if (slice == nullptr) return nullptr;
  PyObject* done = item_store(a[0], slice, a[3]);
  Py_DECREF(slice);
  return done;
}

// (container, item, invert)
PyObject* probe_contains(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_contains_pre(a[0], a[1]);
  int outcome = PySequence_Contains(a[0], a[1]);
  if (outcome < 0) return nullptr;
  if (active()) on_contains(a[0], a[1], outcome);
  return PyBool_FromLong(outcome ^ as_int(a[2]));
}

// ---- operators ----

PyObject* power(PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); }
PyObject* inplace_power(PyObject* x, PyObject* y) { return PyNumber_InPlacePower(x, y, Py_None); }

// Indexed by CPython's NB_* numbers, which are the same on 3.11 to 3.13.
constexpr binaryfunc kBinary[] = {
    PyNumber_Add,           PyNumber_And,           PyNumber_FloorDivide,
    PyNumber_Lshift,        PyNumber_MatrixMultiply, PyNumber_Multiply,
    PyNumber_Remainder,     PyNumber_Or,            power,
    PyNumber_Rshift,        PyNumber_Subtract,      PyNumber_TrueDivide,
    PyNumber_Xor,           PyNumber_InPlaceAdd,    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide, PyNumber_InPlaceLshift, PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply, PyNumber_InPlaceRemainder, PyNumber_InPlaceOr,
    inplace_power,          PyNumber_InPlaceRshift, PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide, PyNumber_InPlaceXor,
};

// (b, a, op)
PyObject* probe_binary(PyObject*, Args a, Py_ssize_t) {
  const int op = as_int(a[2]);
  if (!active()) return kBinary[op](a[1], a[0]);
  on_binary_pre(op, a[1], a[0]);
  PyObject* result = kBinary[op](a[1], a[0]);
  if (result == nullptr || !active()) return result;
  return on_binary(op, a[1], a[0], result);
}

// (b, a, op)
PyObject* probe_compare(PyObject*, Args a, Py_ssize_t) {
  const int op = as_int(a[2]);
  if (!active()) return PyObject_RichCompare(a[1], a[0], op);
  on_compare_pre(op, a[1], a[0]);
  PyObject* result = PyObject_RichCompare(a[1], a[0], op);
  if (result == nullptr || !active()) return result;
  return on_compare(op, a[1], a[0], result);
}

// (a, op)
PyObject* probe_unary(PyObject*, Args a, Py_ssize_t) {
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
  if (result == nullptr || !active()) return result;
  return on_unary(op, a[0], result);
}

// (value): the truth of value is about to be taken; gives value back.
PyObject* probe_truth(PyObject*, Args a, Py_ssize_t) {
  if (!PyBool_Check(a[0]) && active()) on_truth(a[0]);
  return Py_NewRef(a[0]);
}

// ---- looking into an object as a whole ----

// (value): gives value back.
template <Touch how>
PyObject* probe_touch(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_touch(a[0], how);
  return Py_NewRef(a[0]);
}

// (obj)
PyObject* probe_iter(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_touch(a[0], Touch::kIter);
  PyObject* iterator = PyObject_GetIter(a[0]);
  if (iterator != nullptr && active()) on_iter(a[0], iterator);
  return iterator;
}

// (value, iterator)
PyObject* probe_next(PyObject*, Args a, Py_ssize_t) {
  if (!active()) return Py_NewRef(a[0]);
  return on_next(a[1], Py_NewRef(a[0]));
}

// ---- calls ----

PyObject* call(PyObject* f, Args args, Py_ssize_t npos, size_t flag, PyObject* kwnames) {
  if (!active()) return PyObject_Vectorcall(f, args, npos | flag, kwnames);
  PyObject* result = nullptr;
  if (!on_call_pre(f, args, npos, kwnames, &result)) result = PyObject_Vectorcall(f, args, npos | flag, kwnames);
  if (!active()) return result;
  if (result != nullptr) return on_call(f, args, npos, kwnames, result);
  on_call_raised(f, args, npos, kwnames);
  return nullptr;
}

// The operands of a call as the interpreter lays them out on the stack, taken by BUILD_TUPLE: two slots, of which one may be
// NULL, then the arguments.  The tuple is ours alone and must be invisible to the collector: it may hold NULL, and a callee may
// borrow the slot before its first argument.
PyObject* call_packed(PyObject* packed, PyObject* kwnames, Py_ssize_t nitems) {
  if (PyObject_GC_IsTracked(packed)) PyObject_GC_UnTrack(packed);
  PyObject** item = &PyTuple_GET_ITEM(packed, 0);
  Py_ssize_t nargs = nitems - 2;
  PyObject* f;
  PyObject** args = item + 2;
#if PY_VERSION_HEX >= 0x030D0000
  f = item[0];
  if (item[1] != nullptr) {
#else
  f = item[0] != nullptr ? item[0] : item[1];
  if (item[0] != nullptr) {
#endif
    --args;
    ++nargs;
  }
  const Py_ssize_t nkw = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  return call(f, args, nargs - nkw, PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

// (packed) or (packed, kwnames)
PyObject* probe_call(PyObject*, Args a, Py_ssize_t n) {
  return call_packed(a[0], n == 2 ? a[1] : nullptr, PyTuple_GET_SIZE(a[0]));
}

// (packed): the last item is kwnames.
PyObject* probe_call_kw(PyObject*, Args a, Py_ssize_t) {
  const Py_ssize_t n = PyTuple_GET_SIZE(a[0]);
  return call_packed(a[0], PyTuple_GET_ITEM(a[0], n - 1), n - 1);
}

// Performs f(*args, **kwargs) and reports it with the arguments laid out one after the other.
PyObject* call_flat(PyObject* f, PyObject* args, PyObject* kwargs) {
  if (!active()) return PyObject_Call(f, args, kwargs);
  const Py_ssize_t npos = PyTuple_GET_SIZE(args);
  const Py_ssize_t nkw = kwargs == nullptr ? 0 : PyDict_GET_SIZE(kwargs);
  // Keeps what is reported alive whatever the callee does to its arguments.
  PyObject* flat = PyTuple_New(npos + nkw);
  PyObject* kwnames = nkw > 0 ? PyTuple_New(nkw) : nullptr;
  if (flat == nullptr || (nkw > 0 && kwnames == nullptr)) {
    Py_XDECREF(flat);
    Py_XDECREF(kwnames);
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < npos; ++i) PyTuple_SET_ITEM(flat, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
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
    if (!on_call_pre(f, items, npos, kwnames, &result)) result = PyObject_Call(f, args, kwargs);
    if (active()) {
      if (result != nullptr) {
        result = on_call(f, items, npos, kwnames, result);
      } else {
        on_call_raised(f, items, npos, kwnames);
      }
    }
  }
  Py_DECREF(flat);
  Py_XDECREF(kwnames);
  return result;
}

// (packed): [NULL, f, args] or [NULL, f, args, kwargs] (3.13: f before NULL)
PyObject* probe_call_ex(PyObject*, Args a, Py_ssize_t) {
  PyObject* packed = a[0];
  if (PyObject_GC_IsTracked(packed)) PyObject_GC_UnTrack(packed);
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* f = PyTuple_GET_ITEM(packed, 0);
#else
  PyObject* f = PyTuple_GET_ITEM(packed, 1);
#endif
  PyObject* given = PyTuple_GET_ITEM(packed, 2);
  PyObject* kwargs = PyTuple_GET_SIZE(packed) == 4 ? PyTuple_GET_ITEM(packed, 3) : nullptr;
  if (PyTuple_CheckExact(given)) return call_flat(f, given, kwargs);
  if (active()) on_touch(given, Touch::kExtend);
  if (Py_TYPE(given)->tp_iter == nullptr && !PySequence_Check(given)) {
    PyObject* name = _PyObject_FunctionStr(f);
    if (name != nullptr) {
      PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", name, Py_TYPE(given)->tp_name);
      Py_DECREF(name);
    }
    return nullptr;
  }
  PyObject* args = PySequence_Tuple(given);
  if (args == nullptr) return nullptr;
  PyObject* result = call_flat(f, args, kwargs);
  Py_DECREF(args);
  return result;
}

// (class, self, super, name, explicit): super().name of 3.12+, with `explicit` when the program wrote super(class, self).
PyObject* probe_super_attr(PyObject*, Args a, Py_ssize_t) {
  PyObject* pair[] = {nullptr, a[0], a[1]};
  PyObject* super = call(a[2], pair + 1, a[4] == Py_True ? 2 : 0, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (super == nullptr) return nullptr;
  PyObject* value = attr_load(super, a[3]);
  Py_DECREF(super);
  return value;
}

// ---- text ----

PyObject* convert(PyObject* value, int conversion) {
  switch (conversion) {
    case 1: return PyObject_Str(value);
    case 2: return PyObject_Repr(value);
    case 3: return PyObject_ASCII(value);
    default: return Py_NewRef(value);
  }
}

PyObject* format(PyObject* value, PyObject* spec, int conversion) {
  if (active()) on_touch(value, Touch::kFormat);
  PyObject* result = convert(value, conversion);
  if (result == nullptr) return nullptr;
  if (spec != nullptr || !PyUnicode_CheckExact(result)) {
    PyObject* text = PyObject_Format(result, spec);
    Py_DECREF(result);
    if (text == nullptr) return nullptr;
    result = text;
  }
  return active() ? on_format(value, spec, conversion, result) : result;
}

// (value, conversion)
PyObject* probe_format(PyObject*, Args a, Py_ssize_t) { return format(a[0], nullptr, as_int(a[1])); }
// (spec, value, conversion)
PyObject* probe_format_spec(PyObject*, Args a, Py_ssize_t) { return format(a[1], a[0], as_int(a[2])); }

// (value, conversion): only the conversion (3.13).
PyObject* probe_convert(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_touch(a[0], Touch::kFormat);
  PyObject* result = convert(a[0], as_int(a[1]));
  return result != nullptr && active() ? on_format(a[0], nullptr, as_int(a[1]), result) : result;
}

// (parts)
PyObject* probe_build_string(PyObject*, Args a, Py_ssize_t) {
  static PyObject* empty = PyUnicode_New(0, 0);
  PyObject* result = PyUnicode_Join(empty, a[0]);
  if (result == nullptr || !active()) return result;
  return on_build_string(&PyTuple_GET_ITEM(a[0], 0), PyTuple_GET_SIZE(a[0]), result);
}

// ---- the rest ----

// (function)
PyObject* probe_make_function(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_make_function(a[0]);
  return Py_NewRef(a[0]);
}

// (module or value)
PyObject* probe_import(PyObject*, Args a, Py_ssize_t) {
  if (active()) on_import(a[0]);
  return Py_NewRef(a[0]);
}

#define MAGPY_PROBE(name, function) \
  { name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr }

PyMethodDef methods[] = {
    MAGPY_PROBE("probe_attr_load", probe_attr_load),
    MAGPY_PROBE("probe_attr_store", probe_attr_store),
    MAGPY_PROBE("probe_attr_delete", probe_attr_delete),
    MAGPY_PROBE("probe_global_load", probe_global_load),
    MAGPY_PROBE("probe_global_store", probe_global_store),
    MAGPY_PROBE("probe_name_access", probe_name_access),
    MAGPY_PROBE("probe_name_load", probe_name_load),
    MAGPY_PROBE("probe_cell_load", probe_cell_load),
    MAGPY_PROBE("probe_cell_store", probe_cell_store),
    MAGPY_PROBE("probe_item_load", probe_item_load),
    MAGPY_PROBE("probe_item_store", probe_item_store),
    MAGPY_PROBE("probe_item_delete", probe_item_delete),
    MAGPY_PROBE("probe_slice_load", probe_slice_load),
    MAGPY_PROBE("probe_slice_store", probe_slice_store),
    MAGPY_PROBE("probe_contains", probe_contains),
    MAGPY_PROBE("probe_binary", probe_binary),
    MAGPY_PROBE("probe_compare", probe_compare),
    MAGPY_PROBE("probe_unary", probe_unary),
    MAGPY_PROBE("probe_truth", probe_truth),
    MAGPY_PROBE("probe_touch_iter", probe_touch<Touch::kIter>),
    MAGPY_PROBE("probe_touch_unpack", probe_touch<Touch::kUnpack>),
    MAGPY_PROBE("probe_touch_extend", probe_touch<Touch::kExtend>),
    MAGPY_PROBE("probe_touch_match", probe_touch<Touch::kMatch>),
    MAGPY_PROBE("probe_touch_with", probe_touch<Touch::kWith>),
    MAGPY_PROBE("probe_iter", probe_iter),
    MAGPY_PROBE("probe_next", probe_next),
    MAGPY_PROBE("probe_call", probe_call),
    MAGPY_PROBE("probe_call_kw", probe_call_kw),
    MAGPY_PROBE("probe_call_ex", probe_call_ex),
    MAGPY_PROBE("probe_super_attr", probe_super_attr),
    MAGPY_PROBE("probe_format", probe_format),
    MAGPY_PROBE("probe_format_spec", probe_format_spec),
    MAGPY_PROBE("probe_convert", probe_convert),
    MAGPY_PROBE("probe_build_string", probe_build_string),
    MAGPY_PROBE("probe_make_function", probe_make_function),
    MAGPY_PROBE("probe_import", probe_import),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_probes(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace magpy
