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
  if (PyList_Check(object) || PyTuple_Check(object) || PyBytes_Check(object) ||
      PyByteArray_Check(object)) {
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

  PyObject* get(int operand) const {
    return operand >= 0 ? registers_[operand] : program_.constants[~operand];
  }
  void set_borrowed(int dst, PyObject* value) {
    if (program_.owns) Py_INCREF(value);
    registers_[dst] = value;
  }
  void set_owned(int dst, Ref value) {
    registers_[dst] = value.release();
  }  // only in programs that own

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
  const size_t nargsf = op.operands.size() | PY_VECTORCALL_ARGUMENTS_OFFSET;
  const Ref result = Ref::steal(PyObject_Vectorcall(op.x, args.data() + 1, nargsf, nullptr));
  if (!result) PyErr_Clear();
  return result.get() == Py_True;
}

bool load(Frame& frame, int dst, Ref owned) {
  if (!owned) {
    PyErr_Clear();
    return false;
  }
  frame.set_owned(dst, std::move(owned));
  return true;
}

bool run_deque(const Op& op, Frame& frame, PyObject* object) {
  if (!is_deque(object)) return false;
  PySequenceMethods* methods = deque_type()->tp_as_sequence;
  if (methods->sq_length(object) != op.n) return false;
  for (Py_ssize_t i = 0; i < op.n; i++) {
    if (!load(frame, op.dst + (int)i, Ref::steal(methods->sq_item(object, i)))) return false;
  }
  return true;
}

bool run_item(const Op& op, Frame& frame, PyObject* object, Py_ssize_t place) {
  PyObject** items;
  if (PyList_Check(object)) {
    items = ((PyListObject*)object)->ob_item;
  } else if (PyTuple_Check(object)) {
    items = ((PyTupleObject*)object)->ob_item;
  } else {
    return false;
  }
  const Py_ssize_t index = place < 0 ? place + Py_SIZE(object) : place;
  if (index < 0 || index >= Py_SIZE(object)) return false;
  frame.set_borrowed(op.dst, items[index]);
  return true;
}

// The value in a list or dict at a number, a text or a key by identity (a parameter in the state of
// an optimizer) that is itself the content of a register.
bool run_item_at(const Op& op, Frame& frame, PyObject* object) {
  PyObject* place = frame.get(op.second);
  if (PyDict_Check(object)) {
    if (!PyUnicode_CheckExact(place) && !PyLong_CheckExact(place) && !by_identity(place))
      return false;
    PyObject* value = dict_item(object, place);
    if (value) frame.set_borrowed(op.dst, value);
    if (PyErr_Occurred()) PyErr_Clear();
    return value != nullptr;
  }
  if (!PyLong_CheckExact(place)) return false;
  const Py_ssize_t index = PyLong_AsSsize_t(place);
  if (index == -1 && PyErr_Occurred()) {
    PyErr_Clear();  // it is larger than any list
    return false;
  }
  return run_item(op, frame, object, index);
}

bool run_attr_absent(const Op& op, PyObject* object) {
  if (Ref::steal(PyObject_GetAttr(object, op.x))) return false;
  const bool missing = PyErr_ExceptionMatches(PyExc_AttributeError);
  PyErr_Clear();
  return missing;
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
      Ref dict = dict_as_it_is(object);
      return dict && PyDict_Check(dict.get()) && load(frame, op.dst, std::move(dict));
    }
    case Code::kAttr: return load(frame, op.dst, Ref::steal(PyObject_GetAttr(object, op.x)));
    case Code::kAttrAbsent: return run_attr_absent(op, object);
    case Code::kGradient: return load(frame, op.dst, Ref::steal(tensor_api()->gradient(object)));
    case Code::kLen: return raw_length(object) == op.n;
    case Code::kItem: return run_item(op, frame, object, op.n);
    case Code::kItemAt: return run_item_at(op, frame, object);
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
      auto same = [](PyObject* found, PyObject* expected) {
        return (found ? found : Py_None) == expected;
      };
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

// What is wrong, in words, after `op` failed, or none with an exception set.
Ref described(const Op& op, const Frame& frame) {
  PyObject* object = frame.get(op.operand);
  switch (op.code) {
    case Code::kType:
      return format_text("type %s instead of %s", Py_TYPE(object)->tp_name,
                         ((PyTypeObject*)op.x)->tp_name);
    case Code::kSmallInt: {
      const Ref found = safe_text(object);
      return found ? format_text("%U instead of an integer of 48 bits", found.get()) : Ref();
    }
    case Code::kIs:
    case Code::kLeaf: {
      const Ref found = safe_text(object), expected = safe_text(op.x);
      if (!found || !expected) return Ref();
      if (PyUnicode_Compare(found.get(), expected.get()) == 0)
        return format_text("another object (%U)", found.get());
      return format_text("%U instead of %U", found.get(), expected.get());
    }
    case Code::kSame: return format_text("no longer the same object");
    case Code::kDistinct: return format_text("the same object twice");
    case Code::kDictGet:
    case Code::kDictAbsent: {
      const Ref key = safe_text(op.x);
      if (!key) return Ref();
      return format_text(op.code == Code::kDictGet ? "key %U is missing" : "key %U is now there",
                         key.get());
    }
    case Code::kDictKeys: return format_text("other keys, or in another order");
    case Code::kInstDict: return format_text("no __dict__");
    case Code::kAttr: return format_text("attribute %U is missing", op.x);
    case Code::kAttrAbsent: return format_text("attribute %U is now there", op.x);
    case Code::kLen: return format_text("length %zd instead of %zd", raw_length(object), op.n);
    case Code::kItem: return format_text("no item %zd", op.n);
    case Code::kItemAt: {
      const Ref place = safe_text(frame.get(op.second));
      return place ? format_text("no item %U", place.get()) : Ref();
    }
    case Code::kSet: return format_text("other elements in the set");
    case Code::kDeque: return format_text("length %zd instead of %zd", raw_length(object), op.n);
    case Code::kCell: return format_text("the closure variable is empty");
    case Code::kCellEmpty: return format_text("the closure variable is no longer empty");
    case Code::kFunc: return format_text("another function");
    case Code::kMethod: return format_text("not a bound method");
    case Code::kTensor: return Ref::steal(tensor_api()->difference(op.x, object));
    case Code::kGradient: return format_text("not a tensor");
    case Code::kOverlap: return format_text("tensors share memory in another way");
    case Code::kPy: {
      const Ref name = safe_text(op.x);
      return name ? format_text("%U did not return True", name.get()) : Ref();
    }
  }
  return Ref();
}

// What is wrong, in words, after `op` failed; none, without an exception, where memory is gone.
Ref failure_text(const Op& op, const Frame& frame) {
  Ref text = described(op, frame);
  if (!text) {
    PyErr_Clear();
    text = format_text("%s", op_name(op.code));
    if (!text) PyErr_Clear();
  }
  return text;
}

}  // namespace

bool run_program(const Program& program, PyObject* const* args, size_t n, Failure* failure,
                 const Reads* reads) {
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
  if (reads) {
    for (size_t i = 0; i < reads->registers.size(); i++)
      reads->values[i] = Py_NewRef(frame.get(reads->registers[i]));
  }
  return true;
}

}  // namespace magpy
