// See guards.h.  Relative checks are compiled into a vector of `Op` once; registers live on the C stack of the call.
#include "guards.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "anchors.h"
#include "leaf.h"
#include "tensor_access.h"

namespace magpy {

namespace {

enum class Code : uint8_t {
  kType, kSmallInt, kIs, kLeaf, kSame, kDistinct, kDictGet, kDictAbsent, kDictKeys, kInstDict, kAttr, kAttrAbsent, kLen, kItem, kSet,
  kDeque, kCell, kCellEmpty, kFunc, kMethod, kTensor, kOverlap, kPy,
};

// One relative check.  Operands are registers (>= 0) or constants (~index into Program::constants).  Objects are borrowed from
// the op's source tuple, which the program keeps.
struct Op {
  Code code;
  int operand = 0;
  int second = 0;  // `same`
  int dst = 0, dst2 = 0;
  Py_ssize_t n = 0;
  Py_hash_t hash = 0;
  PyObject *x = nullptr, *y = nullptr, *z = nullptr;
  std::vector<int> operands;
  std::vector<PyObject*> objects;  // `distinct`: sorted by address
  std::vector<bool> pairs;         // `overlap`: upper triangle, row by row; empty when none overlaps
  PyObject* source = nullptr;
};

struct Program {
  Py_ssize_t npos = 0;
  PyObject* kwnames = nullptr;  // tuple
  int narguments = 0, nregisters = 0;
  bool owns = false;  // some check makes new references, or may drop some: registers hold strong ones
  size_t harmless = 0;  // so many checks at the beginning only look
  std::vector<Op> ops;
  std::vector<PyObject*> constants;
  std::vector<PyObject*> refs;
};

}  // namespace

struct GuardObject {
  PyObject_HEAD
  bool dead;  // cleared by the cycle collector
  Program* program;
  Anchors* anchors;
};

namespace {

// ---------------------------------------------------------------------------------------------------------------- building

struct OpName {
  const char* name;
  Code code;
  Py_ssize_t size;  // of the tuple
};

constexpr OpName kOps[] = {
    {"type", Code::kType, 3},        {"small_int", Code::kSmallInt, 2}, {"is", Code::kIs, 3},          {"leaf", Code::kLeaf, 3},
    {"same", Code::kSame, 3},        {"distinct", Code::kDistinct, 3}, {"dict_get", Code::kDictGet, 4},
    {"dict_absent", Code::kDictAbsent, 3}, {"dict_keys", Code::kDictKeys, 3}, {"inst_dict", Code::kInstDict, 3},
    {"attr", Code::kAttr, 4},        {"attr_absent", Code::kAttrAbsent, 3}, {"len", Code::kLen, 3},
    {"item", Code::kItem, 4},        {"set", Code::kSet, 3},        {"deque", Code::kDeque, 4},
    {"cell", Code::kCell, 3},        {"cell_empty", Code::kCellEmpty, 2}, {"func", Code::kFunc, 5},
    {"method", Code::kMethod, 4},    {"tensor", Code::kTensor, 3},  {"overlap", Code::kOverlap, 4},
    {"py", Code::kPy, 3},
};

const char* op_name(Code code) {
  for (const OpName& entry : kOps) {
    if (entry.code == code) return entry.name;
  }
  return "?";
}

// No code of the user's classes can run, and nothing is made.
bool only_looks(Code code) {
  switch (code) {
    case Code::kInstDict:
    case Code::kAttr:
    case Code::kAttrAbsent:
    case Code::kSet:
    case Code::kDeque:
    case Code::kPy: return false;
    default: return true;
  }
}

class Builder {
 public:
  Builder(Program& program, int nregs) : program_(program) {
    written_.assign(std::max(nregs, program.narguments), false);
    std::fill(written_.begin(), written_.begin() + program.narguments, true);
  }

  int add(PyObject* source);
  int finish() {
    program_.nregisters = (int)written_.size();
    auto first = std::find_if_not(program_.ops.begin(), program_.ops.end(), [](const Op& op) { return only_looks(op.code); });
    program_.harmless = first - program_.ops.begin();
    return 0;
  }

 private:
  // An operand: an int register that was written, or ("a", object).
  int operand(PyObject* value, int* out);
  int operand_list(PyObject* values, std::vector<int>* out);
  int destination(PyObject* value, int* out, Py_ssize_t count = 1);
  int expect(PyObject* value, PyTypeObject* type, PyObject** out);
  int size(PyObject* value, Py_ssize_t* out);
  int fill(Op& op, PyObject* const* args);
  int fill_overlap(Op& op, PyObject* pairs);

  Program& program_;
  std::vector<bool> written_;
};

int Builder::operand(PyObject* value, int* out) {
  if (PyLong_CheckExact(value)) {
    long index = PyLong_AsLong(value);
    if (index == -1 && PyErr_Occurred()) return -1;
    if (index < 0 || (size_t)index >= written_.size() || !written_[index]) {
      return PyErr_Format(PyExc_ValueError, "register %ld is read before it is written", index), -1;
    }
    *out = (int)index;
    return 0;
  }
  if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2) {
    program_.constants.push_back(PyTuple_GET_ITEM(value, 1));
    *out = ~(int)(program_.constants.size() - 1);
    return 0;
  }
  return PyErr_Format(PyExc_TypeError, "an operand is a register or ('a', object), not %R", value), -1;
}

int Builder::operand_list(PyObject* values, std::vector<int>* out) {
  if (!PyTuple_Check(values)) return PyErr_SetString(PyExc_TypeError, "a tuple of operands is needed"), -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
    int index = 0;
    if (operand(PyTuple_GET_ITEM(values, i), &index) < 0) return -1;
    out->push_back(index);
  }
  return 0;
}

int Builder::destination(PyObject* value, int* out, Py_ssize_t count) {
  long index = PyLong_Check(value) ? PyLong_AsLong(value) : -1;
  constexpr long kMost = 1 << 20;
  if (index < program_.narguments || index + count > kMost) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%R is not a register for a temporary", value);
    return -1;
  }
  if ((size_t)(index + count) > written_.size()) written_.resize(index + count, false);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (written_[index + i]) return PyErr_Format(PyExc_ValueError, "register %ld is written twice", index + (long)i), -1;
    written_[index + i] = true;
  }
  *out = (int)index;
  return 0;
}

int Builder::expect(PyObject* value, PyTypeObject* type, PyObject** out) {
  if (!PyObject_TypeCheck(value, type)) {
    return PyErr_Format(PyExc_TypeError, "%s is needed, not %R", type->tp_name, value), -1;
  }
  *out = value;
  return 0;
}

int Builder::size(PyObject* value, Py_ssize_t* out) {
  *out = PyNumber_AsSsize_t(value, PyExc_OverflowError);
  return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int Builder::fill_overlap(Op& op, PyObject* pairs) {
  size_t n = op.operands.size();
  PyObject* fast = PySequence_Fast(pairs, "overlap: pairs must be a sequence");
  if (!fast) return -1;
  if (PySequence_Fast_GET_SIZE(fast)) op.pairs.assign(n * n, false);
  int status = 0;
  for (Py_ssize_t k = 0; status == 0 && k < PySequence_Fast_GET_SIZE(fast); k++) {
    Py_ssize_t i, j;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast, k), "nn:overlap", &i, &j)) {
      status = -1;
    } else if (i < 0 || j < 0 || (size_t)i >= n || (size_t)j >= n || i == j) {
      PyErr_SetString(PyExc_ValueError, "overlap: no such pair");
      status = -1;
    } else {
      op.pairs[std::min(i, j) * n + std::max(i, j)] = true;
    }
  }
  Py_DECREF(fast);
  return status;
}

int Builder::fill(Op& op, PyObject* const* args) {
  switch (op.code) {
    case Code::kType:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyType_Type, &op.x);
    case Code::kSmallInt:
      return operand(args[0], &op.operand);
    case Code::kIs:
    case Code::kLeaf:
      op.x = args[1];
      return operand(args[0], &op.operand);
    case Code::kSame:
      return operand(args[0], &op.operand) < 0 ? -1 : operand(args[1], &op.second);
    case Code::kDistinct: {
      if (operand_list(args[0], &op.operands) < 0) return -1;
      if (!PyTuple_Check(args[1])) return PyErr_SetString(PyExc_TypeError, "distinct: a tuple of objects is needed"), -1;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) op.objects.push_back(PyTuple_GET_ITEM(args[1], i));
      std::sort(op.objects.begin(), op.objects.end());
      return 0;
    }
    case Code::kDictGet:
      op.x = args[2];
      op.hash = PyObject_Hash(op.x);
      if (op.hash == -1 || operand(args[1], &op.operand) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kDictAbsent:
      op.x = args[1];
      op.hash = PyObject_Hash(op.x);
      return op.hash == -1 ? -1 : operand(args[0], &op.operand);
    case Code::kDictKeys:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyTuple_Type, &op.x);
    case Code::kSet: {
      if (operand(args[0], &op.operand) < 0) return -1;
      return expect(args[1], &PyFrozenSet_Type, &op.x);
    }
    case Code::kInstDict:
      program_.owns = true;
      return operand(args[1], &op.operand) < 0 ? -1 : destination(args[0], &op.dst);
    case Code::kAttr:
      program_.owns = true;
      if (operand(args[1], &op.operand) < 0 || expect(args[2], &PyUnicode_Type, &op.x) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kAttrAbsent:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyUnicode_Type, &op.x);
    case Code::kLen:
      return operand(args[0], &op.operand) < 0 ? -1 : size(args[1], &op.n);
    case Code::kItem:
      if (operand(args[1], &op.operand) < 0 || size(args[2], &op.n) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kDeque:
      program_.owns = true;
      if (operand(args[1], &op.operand) < 0 || size(args[2], &op.n) < 0) return -1;
      return op.n == 0 ? 0 : destination(args[0], &op.dst, op.n);
    case Code::kCell:
      return operand(args[1], &op.operand) < 0 ? -1 : destination(args[0], &op.dst);
    case Code::kCellEmpty:
      return operand(args[0], &op.operand);
    case Code::kFunc:
      op.x = args[1];
      op.y = args[2];
      op.z = args[3];
      return operand(args[0], &op.operand);
    case Code::kMethod:
      if (operand(args[2], &op.operand) < 0 || destination(args[0], &op.dst) < 0) return -1;
      return destination(args[1], &op.dst2);
    case Code::kTensor: {
      const TensorApi* api = tensor_api();
      if (!api || operand(args[0], &op.operand) < 0) return -1;
      return expect(args[1], api->meta_type, &op.x);
    }
    case Code::kOverlap:
      if (!tensor_api() || operand_list(args[0], &op.operands) < 0) return -1;
      if (size(args[2], &op.n) < 0) return -1;
      if (op.n < 0 || (size_t)op.n > op.operands.size()) {
        PyErr_SetString(PyExc_ValueError, "overlap: so many tensors are not there");
        return -1;
      }
      return fill_overlap(op, args[1]);
    case Code::kPy:
      program_.owns = true;
      op.x = args[0];
      return operand_list(args[1], &op.operands);
  }
  return -1;
}

int Builder::add(PyObject* source) {
  PyObject* name = PyTuple_Check(source) && PyTuple_GET_SIZE(source) ? PyTuple_GET_ITEM(source, 0) : nullptr;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a check is a tuple that begins with its name, not %R", source);
    return -1;
  }
  for (const OpName& entry : kOps) {
    if (std::strcmp(entry.name, text) != 0) continue;
    if (PyTuple_GET_SIZE(source) != entry.size) {
      return PyErr_Format(PyExc_ValueError, "%s takes %zd values: %R", text, entry.size - 1, source), -1;
    }
    Py_INCREF(source);
    program_.refs.push_back(source);
    Op op;
    op.code = entry.code;
    op.source = source;
    if (fill(op, ((PyTupleObject*)source)->ob_item + 1) < 0) return -1;
    program_.ops.push_back(std::move(op));
    return 0;
  }
  return PyErr_Format(PyExc_ValueError, "unknown check %s", text), -1;
}

// ---------------------------------------------------------------------------------------------------------------- running

PyTypeObject* deque_type() {
  static PyTypeObject* type = [] {
    PyObject* module = PyImport_ImportModule("collections");
    PyObject* found = module ? PyObject_GetAttrString(module, "deque") : nullptr;
    Py_XDECREF(module);
    if (!found) PyErr_Clear();
    return (PyTypeObject*)found;
  }();
  return type;
}

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

bool run_distinct(const Op& op, const Frame& frame) {
  size_t n = op.operands.size();
  PyObject* small[kSmall];
  std::vector<PyObject*> large;
  PyObject** objects = small;
  if (n > kSmall) {
    large.resize(n);
    objects = large.data();
  }
  for (size_t i = 0; i < n; i++) {
    objects[i] = frame.get(op.operands[i]);
    if (std::binary_search(op.objects.begin(), op.objects.end(), objects[i])) return false;
  }
  std::sort(objects, objects + n);
  return std::adjacent_find(objects, objects + n) == objects + n;
}

bool run_overlap(const Op& op, const Frame& frame) {
  const TensorApi* api = tensor_api();
  size_t n = op.operands.size(), m = (size_t)op.n;
  PyObject* small[kSmall];
  std::vector<PyObject*> large;
  PyObject** objects = small;
  if (n > kSmall) {
    large.resize(n);
    objects = large.data();
  }
  for (size_t i = 0; i < n; i++) objects[i] = frame.get(op.operands[i]);
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
      PyObject* dict = PyObject_GenericGetDict(object, nullptr);
      if (dict && !PyDict_Check(dict)) Py_CLEAR(dict);
      return load(frame, op.dst, dict);
    }
    case Code::kAttr: return load(frame, op.dst, PyObject_GetAttr(object, op.x));
    case Code::kAttrAbsent: return run_attr_absent(op, object);
    case Code::kLen: return raw_length(object) == op.n;
    case Code::kItem: return run_item(op, frame, object);
    case Code::kSet: return PyAnySet_Check(object) && set_equal(object, op.x);
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

bool kwnames_match(PyObject* expected, PyObject* given) {
  if (!given) return PyTuple_GET_SIZE(expected) == 0;
  if (given == expected) return true;
  Py_ssize_t n = PyTuple_GET_SIZE(expected);
  if (PyTuple_GET_SIZE(given) != n) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *a = PyTuple_GET_ITEM(expected, i), *b = PyTuple_GET_ITEM(given, i);
    if (a == b) continue;
    if (!PyUnicode_Check(b) || PyUnicode_Compare(a, b) != 0) return false;
  }
  return true;
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

bool arguments_match(const Program& program, Py_ssize_t npos, PyObject* kwnames) {
  return npos == program.npos && kwnames_match(program.kwnames, kwnames);
}

// ---------------------------------------------------------------------------------------------------------------- the Python type

PyObject* guard_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"npos", "kwnames", "nregs", "checks", "anchors", nullptr};
  Py_ssize_t npos;
  int nregs;
  PyObject *kwnames, *checks, *anchors;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO!iOO!:Guard", const_cast<char**>(names), &npos, &PyTuple_Type, &kwnames,
                                   &nregs, &checks, &PyDict_Type, &anchors)) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
    if (!PyUnicode_Check(PyTuple_GET_ITEM(kwnames, i))) {
      return PyErr_SetString(PyExc_TypeError, "kwnames must be a tuple of str"), nullptr;
    }
  }
  if (npos < 0) return PyErr_SetString(PyExc_ValueError, "npos must not be negative"), nullptr;
  auto* self = (GuardObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->dead = false;
  self->program = new (std::nothrow) Program();
  self->anchors = new (std::nothrow) Anchors();
  PyObject* fast = self->program && self->anchors ? PySequence_Fast(checks, "checks must be a sequence") : PyErr_NoMemory();
  if (!fast) {
    Py_DECREF(self);
    return nullptr;
  }
  Program& program = *self->program;
  Py_INCREF(kwnames);
  program.refs.push_back(kwnames);
  program.kwnames = kwnames;
  program.npos = npos;
  program.narguments = (int)(npos + PyTuple_GET_SIZE(kwnames));
  Builder builder(program, nregs);
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(fast); i++) {
    status = builder.add(PySequence_Fast_GET_ITEM(fast, i));
  }
  Py_DECREF(fast);
  if (status == 0) status = builder.finish();
  if (status == 0) status = self->anchors->build(anchors);
  if (status < 0) {
    Py_DECREF(self);
    return nullptr;
  }
  return (PyObject*)self;
}

int guard_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = (GuardObject*)object;
  if (self->program) {
    for (PyObject* ref : self->program->refs) Py_VISIT(ref);
  }
  return self->anchors ? self->anchors->traverse(visit, arg) : 0;
}

int guard_clear(PyObject* object) {
  auto* self = (GuardObject*)object;
  self->dead = true;
  if (self->program) {
    std::vector<PyObject*> refs;
    refs.swap(self->program->refs);
    self->program->ops.clear();
    for (PyObject* ref : refs) Py_DECREF(ref);
  }
  if (self->anchors) self->anchors->release();
  return 0;
}

void guard_dealloc(PyObject* object) {
  auto* self = (GuardObject*)object;
  PyObject_GC_UnTrack(object);
  guard_clear(object);
  delete self->program;
  delete self->anchors;
  Py_TYPE(object)->tp_free(object);
}

// A call given as (tuple, dict | None), spread into a vector.
struct Call {
  std::vector<PyObject*> values;
  Py_ssize_t npos = 0;
  PyObject* kwnames = nullptr;
  ~Call() { Py_XDECREF(kwnames); }

  int parse(PyObject* args, PyObject* kwargs) {
    npos = PyTuple_GET_SIZE(args);
    for (Py_ssize_t i = 0; i < npos; i++) values.push_back(PyTuple_GET_ITEM(args, i));
    if (kwargs == Py_None) return 0;
    if (!PyDict_Check(kwargs)) return PyErr_SetString(PyExc_TypeError, "kwargs must be a dict or None"), -1;
    kwnames = PyTuple_New(PyDict_GET_SIZE(kwargs));
    if (!kwnames) return -1;
    PyObject *key, *value;
    Py_ssize_t pos = 0, i = 0;
    while (PyDict_Next(kwargs, &pos, &key, &value)) {
      PyTuple_SET_ITEM(kwnames, i++, Py_NewRef(key));
      values.push_back(value);
    }
    return 0;
  }
};

PyObject* guard_check(PyObject* self, PyObject* args) {
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:check", &PyTuple_Type, &positional, &keywords) || call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  return PyBool_FromLong(Guard_check((GuardObject*)self, call.values.data(), call.npos, call.kwnames, false));
}

PyObject* explanation(const Failure& failure) {
  PyObject* text = failure.text ? failure.text : PyUnicode_FromString("changed");
  if (!text) return nullptr;
  PyObject* result = std::strcmp(failure.section, "checks") == 0
                         ? Py_BuildValue("(nN)", failure.i, text)
                         : Py_BuildValue("((snn)N)", failure.section, failure.i, failure.j, text);
  return result;
}

PyObject* guard_explain(PyObject* object, PyObject* args) {
  auto* self = (GuardObject*)object;
  PyObject *positional, *keywords = Py_None;
  Call call;
  if (!PyArg_ParseTuple(args, "O!|O:explain", &PyTuple_Type, &positional, &keywords) || call.parse(positional, keywords) < 0) {
    return nullptr;
  }
  Failure failure;
  const Program& program = *self->program;
  if (self->dead) {
    failure.section = "dead";
  } else if (call.npos != program.npos) {
    failure.section = "args";
    failure.text = PyUnicode_FromFormat("%zd positional arguments instead of %zd", call.npos, program.npos);
  } else if (!kwnames_match(program.kwnames, call.kwnames)) {
    failure.section = "args";
    PyObject *found = call.kwnames ? safe_text(call.kwnames) : PyUnicode_FromString("()"), *expected = safe_text(program.kwnames);
    if (found && expected) failure.text = PyUnicode_FromFormat("keyword arguments %U instead of %U", found, expected);
    Py_XDECREF(found);
    Py_XDECREF(expected);
  } else if (self->anchors->explain(&failure) && run_program(program, call.values.data(), program.ops.size(), &failure)) {
    Py_RETURN_NONE;
  }
  return explanation(failure);
}

PyObject* op_text(const Op& op) {
  PyObject* text = PyUnicode_FromFormat("%s", op_name(op.code));
  for (Py_ssize_t i = 1; text && i < PyTuple_GET_SIZE(op.source); i++) {
    PyObject* part = safe_text(PyTuple_GET_ITEM(op.source, i));
    PyObject* joined = part ? PyUnicode_FromFormat("%U %U", text, part) : nullptr;
    Py_XDECREF(part);
    Py_DECREF(text);
    text = joined;
  }
  return text;
}

PyObject* guard_describe(PyObject* object, PyObject*) {
  auto* self = (GuardObject*)object;
  PyObject* lines = PyList_New(0);
  if (!lines) return nullptr;
  int status = self->anchors->describe(lines);
  for (size_t i = 0; status == 0 && i < self->program->ops.size(); i++) {
    PyObject* text = op_text(self->program->ops[i]);
    status = text ? PyList_Append(lines, text) : -1;
    Py_XDECREF(text);
  }
  if (status < 0) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    Py_CLEAR(lines);
  }
  return lines;
}

PyObject* py_add_leaf_type(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_SetString(PyExc_TypeError, "a class is needed"), nullptr;
  add_leaf_type((PyTypeObject*)type);
  Py_RETURN_NONE;
}

PyObject* py_leaf_equal(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO:leaf_equal", &a, &b)) return nullptr;
  return PyBool_FromLong(leaf_equal(a, b));
}

PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_VARARGS, "check(args, kwargs=None) -> bool: does every check hold for this call?"},
    {"explain", guard_explain, METH_VARARGS, "explain(args, kwargs=None): None, or which check fails first and why."},
    {"describe", guard_describe, METH_NOARGS, "describe() -> list[str]: a line for each check."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef module_methods[] = {
    {"set_tensor_api", set_tensor_api, METH_O, "Installs the capsule magpy._tensor._api."},
    {"add_leaf_type", py_add_leaf_type, METH_O, "Makes a class whose == is harmless C code compare by value."},
    {"leaf_equal", py_leaf_equal, METH_VARARGS, "Are these the same object, or equal leaves?"},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* absent_repr(PyObject*) { return PyUnicode_FromString("ABSENT"); }

PyTypeObject Absent_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

PyTypeObject Guard_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool Guard_check(GuardObject* guard, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames, bool among_others) {
  const Program& program = *guard->program;
  if (guard->dead || !arguments_match(program, npos, kwnames)) return false;
  // Entries mostly differ in what they were given: that is found out before everything anchored is looked at.  The checks run again
  // after it, since what it runs may change anything.
  if (among_others && !run_program(program, args, program.harmless, nullptr)) return false;
  if (!guard->anchors->check()) return false;
  return run_program(program, args, program.ops.size(), nullptr);
}

int init_guards(PyObject* module) {
  Absent_Type.tp_name = "magpy._interp.Absent";
  Absent_Type.tp_basicsize = sizeof(PyObject);
  Absent_Type.tp_flags = Py_TPFLAGS_DEFAULT;
  Absent_Type.tp_repr = absent_repr;
  Absent_Type.tp_doc = "The type of ABSENT: a key, attribute or cell content that must be missing.";
  Guard_Type.tp_name = "magpy._interp.Guard";
  Guard_Type.tp_basicsize = sizeof(GuardObject);
  Guard_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  Guard_Type.tp_doc = "The checks of one entry.";
  Guard_Type.tp_new = guard_new;
  Guard_Type.tp_dealloc = guard_dealloc;
  Guard_Type.tp_traverse = guard_traverse;
  Guard_Type.tp_clear = guard_clear;
  Guard_Type.tp_methods = guard_methods;
  if (PyType_Ready(&Absent_Type) < 0 || PyType_Ready(&Guard_Type) < 0) return -1;
  absent = PyObject_New(PyObject, &Absent_Type);
  if (!absent || PyModule_AddObjectRef(module, "ABSENT", absent) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Absent", (PyObject*)&Absent_Type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Guard", (PyObject*)&Guard_Type) < 0) return -1;
  return PyModule_AddFunctions(module, module_methods);
}

}  // namespace magpy
