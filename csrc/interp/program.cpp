// The running of a guard's program; see program.h.
#include "program.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "classes.h"
#include "leaf.h"
#include "signals.h"
#include "tensor_access.h"

namespace magpy {

namespace {

bool is_deque(PyObject* object) {
  PyTypeObject* type = deque_type();
  return type && PyObject_TypeCheck(object, type);
}

// The length as C sees it, whatever __len__ a subclass has; -1 for what has none.
Py_ssize_t raw_length(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object)) {
    return Py_SIZE(object);
  }
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (is_deque(object)) return deque_type()->tp_as_sequence->sq_length(object);
  return -1;
}

// The registers of one run.
class Frame {
 public:
  Frame(const Program& program, PyObject** registers) : program_(program), registers_(registers) {}
  ~Frame() {
    if (!program_.owns) return;
    for (int i = program_.narguments; i < program_.nregisters; i++) Py_XDECREF(registers_[i]);
  }

  PyObject* get(int operand) const { return operand >= 0 ? registers_[operand] : program_.constants[~operand]; }
  void set_borrowed(int dst, PyObject* value) {
    if (program_.owns) Py_INCREF(value);
    registers_[dst] = value;
  }
  void set_owned(int dst, PyObject* value) { registers_[dst] = value; }  // only in programs that own

 private:
  const Program& program_;
  PyObject** registers_;
};

// So many objects are gathered on the stack.
constexpr size_t kSmall = 16;

// What the operands of an op are.
class Gathered {
 public:
  Gathered(const Op& op, const Frame& frame) {
    if (op.operands.size() > kSmall) {
      large_.resize(op.operands.size());
      objects = large_.data();
    }
    for (size_t i = 0; i < op.operands.size(); i++) objects[i] = frame.get(op.operands[i]);
  }

  PyObject** objects = small_;

 private:
  PyObject* small_[kSmall];
  std::vector<PyObject*> large_;
};

bool run_distinct(const Op& op, const Frame& frame) {
  size_t n = op.operands.size();
  Gathered gathered(op, frame);
  PyObject** objects = gathered.objects;
  for (size_t i = 0; i < n; i++) {
    if (std::binary_search(op.objects.begin(), op.objects.end(), objects[i])) return false;
  }
  std::sort(objects, objects + n);
  return std::adjacent_find(objects, objects + n) == objects + n;
}

bool run_overlap(const Op& op, const Frame& frame) {
  const TensorApi* api = tensor_api();
  size_t n = op.operands.size(), m = (size_t)op.n;
  Gathered gathered(op, frame);
  PyObject** objects = gathered.objects;
  if (op.pairs.empty()) return api->apart(objects, m, n);
  for (size_t i = 0; i < m; i++) {
    for (size_t j = i + 1; j < n; j++) {
      if (api->overlaps(objects[i], objects[j]) != op.pairs[i * n + j]) return false;
    }
  }
  return true;
}

bool run_py(const Op& op, const Frame& frame) {
  std::vector<PyObject*> args(op.operands.size() + 1);
  for (size_t i = 0; i < op.operands.size(); i++) args[i + 1] = frame.get(op.operands[i]);
  SignalHold signals;  // what a handler raises is no answer
  PyObject* result = PyObject_Vectorcall(op.x, args.data() + 1, op.operands.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (!result) PyErr_Clear();
  bool holds = result == Py_True;
  Py_XDECREF(result);
  return holds;
}

bool run_deque(const Op& op, Frame& frame, PyObject* object) {
  if (!is_deque(object)) return false;
  PySequenceMethods* methods = deque_type()->tp_as_sequence;
  if (methods->sq_length(object) != op.n) return false;
  for (Py_ssize_t i = 0; i < op.n; i++) {
    PyObject* item = methods->sq_item(object, i);
    if (!item) {
      PyErr_Clear();
      return false;
    }
    frame.set_owned(op.dst + (int)i, item);
  }
  return true;
}

bool run_item(const Op& op, Frame& frame, PyObject* object) {
  PyObject** items;
  if (PyList_Check(object)) {
    items = ((PyListObject*)object)->ob_item;
  } else if (PyTuple_Check(object)) {
    items = ((PyTupleObject*)object)->ob_item;
  } else {
    return false;
  }
  Py_ssize_t index = op.n < 0 ? op.n + Py_SIZE(object) : op.n;
  if (index < 0 || index >= Py_SIZE(object)) return false;
  frame.set_borrowed(op.dst, items[index]);
  return true;
}

bool run_attr_absent(const Op& op, PyObject* object) {
  PyObject* value = PyObject_GetAttr(object, op.x);
  if (!value) {
    bool missing = PyErr_ExceptionMatches(PyExc_AttributeError);
    PyErr_Clear();
    return missing;
  }
  Py_DECREF(value);
  return false;
}

bool load(Frame& frame, int dst, PyObject* owned) {
  if (!owned) {
    PyErr_Clear();
    return false;
  }
  frame.set_owned(dst, owned);
  return true;
}

bool run(const Op& op, Frame& frame) {
  PyObject* object = frame.get(op.operand);
  switch (op.code) {
    case Code::kType: return Py_TYPE(object) == (PyTypeObject*)op.x;
    case Code::kSmallInt: return is_small_int(object);
    case Code::kIs: return object == op.x;
    case Code::kLeaf: return leaf_equal(object, op.x);
    case Code::kSame: return object == frame.get(op.second);
    case Code::kDistinct: return run_distinct(op, frame);
    case Code::kDictGet: {
      PyObject* value = PyDict_Check(object) ? raw_dict_get(object, op.x, op.hash) : nullptr;
      if (!value) return false;
      frame.set_borrowed(op.dst, value);
      return true;
    }
    case Code::kDictAbsent: return PyDict_Check(object) && !raw_dict_get(object, op.x, op.hash);
    case Code::kDictKeys: return PyDict_Check(object) && raw_dict_keys_equal(object, op.x);
    case Code::kInstDict: {
      PyObject* dict = dict_as_it_is(object);
      if (dict && !PyDict_Check(dict)) Py_CLEAR(dict);
      return load(frame, op.dst, dict);
    }
    case Code::kAttr: return load(frame, op.dst, PyObject_GetAttr(object, op.x));
    case Code::kAttrAbsent: return run_attr_absent(op, object);
    case Code::kGradient: return load(frame, op.dst, tensor_api()->gradient(object));
    case Code::kLen: return raw_length(object) == op.n;
    case Code::kItem: return run_item(op, frame, object);
    case Code::kSet: return PyAnySet_Check(object) && set_gives(object, op.x);
    case Code::kDeque: return run_deque(op, frame, object);
    case Code::kCell: {
      PyObject* value = PyCell_Check(object) ? PyCell_GET(object) : nullptr;
      if (!value) return false;
      frame.set_borrowed(op.dst, value);
      return true;
    }
    case Code::kCellEmpty: return PyCell_Check(object) && PyCell_GET(object) == nullptr;
    case Code::kFunc: {
      if (!PyFunction_Check(object)) return false;
      auto* f = (PyFunctionObject*)object;
      auto same = [](PyObject* found, PyObject* expected) { return (found ? found : Py_None) == expected; };
      return f->func_code == op.x && same(f->func_defaults, op.y) && same(f->func_kwdefaults, op.z);
    }
    case Code::kMethod:
      if (!PyMethod_Check(object)) return false;
      frame.set_borrowed(op.dst, PyMethod_GET_FUNCTION(object));
      frame.set_borrowed(op.dst2, PyMethod_GET_SELF(object));
      return true;
    case Code::kTensor: return tensor_api()->matches(op.x, object);
    case Code::kOverlap: return run_overlap(op, frame);
    case Code::kPy: return run_py(op, frame);
  }
  return false;
}

// What is wrong, in words, after `op` failed.  A new str, or nullptr without an exception.
PyObject* failure_text(const Op& op, const Frame& frame) {
  PyObject* object = frame.get(op.operand);
  PyObject* text = nullptr;
  switch (op.code) {
    case Code::kType:
      text = PyUnicode_FromFormat("type %s instead of %s", Py_TYPE(object)->tp_name, ((PyTypeObject*)op.x)->tp_name);
      break;
    case Code::kSmallInt: {
      PyObject* found = safe_text(object);
      if (found) text = PyUnicode_FromFormat("%U instead of an integer of 48 bits", found);
      Py_XDECREF(found);
      break;
    }
    case Code::kIs:
    case Code::kLeaf: {
      PyObject *found = safe_text(object), *expected = safe_text(op.x);
      if (found && expected) {
        text = PyUnicode_Compare(found, expected) == 0 ? PyUnicode_FromFormat("another object (%U)", found)
                                                       : PyUnicode_FromFormat("%U instead of %U", found, expected);
      }
      Py_XDECREF(found);
      Py_XDECREF(expected);
      break;
    }
    case Code::kSame: text = PyUnicode_FromString("no longer the same object"); break;
    case Code::kDistinct: text = PyUnicode_FromString("the same object twice"); break;
    case Code::kDictGet:
    case Code::kDictAbsent: {
      PyObject* key = safe_text(op.x);
      if (key) text = PyUnicode_FromFormat(op.code == Code::kDictGet ? "key %U is missing" : "key %U is now there", key);
      Py_XDECREF(key);
      break;
    }
    case Code::kDictKeys: text = PyUnicode_FromString("other keys, or in another order"); break;
    case Code::kInstDict: text = PyUnicode_FromString("no __dict__"); break;
    case Code::kAttr: text = PyUnicode_FromFormat("attribute %U is missing", op.x); break;
    case Code::kAttrAbsent: text = PyUnicode_FromFormat("attribute %U is now there", op.x); break;
    case Code::kLen: text = PyUnicode_FromFormat("length %zd instead of %zd", raw_length(object), op.n); break;
    case Code::kItem: text = PyUnicode_FromFormat("no item %zd", op.n); break;
    case Code::kSet: text = PyUnicode_FromString("other elements in the set"); break;
    case Code::kDeque: text = PyUnicode_FromFormat("length %zd instead of %zd", raw_length(object), op.n); break;
    case Code::kCell: text = PyUnicode_FromString("the closure variable is empty"); break;
    case Code::kCellEmpty: text = PyUnicode_FromString("the closure variable is no longer empty"); break;
    case Code::kFunc: text = PyUnicode_FromString("another function"); break;
    case Code::kMethod: text = PyUnicode_FromString("not a bound method"); break;
    case Code::kTensor: text = tensor_api()->difference(op.x, object); break;
    case Code::kGradient: text = PyUnicode_FromString("not a tensor"); break;
    case Code::kOverlap: text = PyUnicode_FromString("tensors share memory in another way"); break;
    case Code::kPy: {
      PyObject* name = safe_text(op.x);
      if (name) text = PyUnicode_FromFormat("%U did not return True", name);
      Py_XDECREF(name);
      break;
    }
  }
  if (!text) {
    PyErr_Clear();
    text = PyUnicode_FromString(op_name(op.code));
    if (!text) PyErr_Clear();
  }
  return text;
}

// Runs the first `n` relative checks.  With `failure`, says which one failed.

}  // namespace

bool run_program(const Program& program, PyObject* const* args, size_t n, Failure* failure) {
  constexpr int kOnStack = 64;
  PyObject* on_stack[kOnStack];
  std::unique_ptr<PyObject*[]> on_heap;
  PyObject** registers = on_stack;
  if (program.nregisters > kOnStack) {
    on_heap.reset(new (std::nothrow) PyObject*[program.nregisters]);
    if (!on_heap) return false;
    registers = on_heap.get();
  }
  if (program.narguments) std::memcpy(registers, args, program.narguments * sizeof *args);
  std::fill(registers + program.narguments, registers + program.nregisters, nullptr);
  Frame frame(program, registers);
  for (size_t i = 0; i < n; i++) {
    const Op& op = program.ops[i];
    if (run(op, frame)) continue;
    if (failure) {
      failure->section = "checks";
      failure->i = (Py_ssize_t)i;
      failure->text = failure_text(op, frame);
    }
    return false;
  }
  return true;
}

}  // namespace magpy
