// The building of a guard's program; see program.h.
#include "program.h"
#include "leaf.h"

#include <algorithm>
#include <cstring>

#include "tensor_access.h"

namespace magpy {

namespace {

struct OpName {
  const char* name;
  Code code;
  Py_ssize_t size;  // of the tuple
};

constexpr OpName kOps[] = {
    {"type", Code::kType, 3},
    {"small_int", Code::kSmallInt, 2},
    {"is", Code::kIs, 3},
    {"leaf", Code::kLeaf, 3},
    {"same", Code::kSame, 3},
    {"distinct", Code::kDistinct, 3},
    {"dict_get", Code::kDictGet, 4},
    {"dict_absent", Code::kDictAbsent, 3},
    {"dict_keys", Code::kDictKeys, 3},
    {"inst_dict", Code::kInstDict, 3},
    {"attr", Code::kAttr, 4},
    {"attr_absent", Code::kAttrAbsent, 3},
    {"len", Code::kLen, 3},
    {"item", Code::kItem, 4},
    {"item_at", Code::kItemAt, 4},
    {"set", Code::kSet, 3},
    {"deque", Code::kDeque, 4},
    {"cell", Code::kCell, 3},
    {"cell_empty", Code::kCellEmpty, 2},
    {"func", Code::kFunc, 5},
    {"method", Code::kMethod, 4},
    {"tensor", Code::kTensor, 3},
    {"overlap", Code::kOverlap, 4},
    {"gradient", Code::kGradient, 3},
    {"py", Code::kPy, 3},
};

// No code of the user's classes can run, and nothing is made.
bool only_looks(Code code) {
  switch (code) {
    case Code::kInstDict:
    case Code::kAttr:
    case Code::kAttrAbsent:
    case Code::kGradient:
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
    auto first = std::find_if_not(program_.ops.begin(), program_.ops.end(),
                                  [](const Op& op) { return only_looks(op.code); });
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
  return PyErr_Format(PyExc_TypeError, "an operand is a register or ('a', object), not %R", value),
         -1;
}

int Builder::operand_list(PyObject* values, std::vector<int>* out) {
  if (!PyTuple_Check(values))
    return PyErr_SetString(PyExc_TypeError, "a tuple of operands is needed"), -1;
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
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "%R is not a register for a temporary", value);
    return -1;
  }
  if ((size_t)(index + count) > written_.size()) written_.resize(index + count, false);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (written_[index + i])
      return PyErr_Format(PyExc_ValueError, "register %ld is written twice", index + (long)i), -1;
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
  const Ref fast = Ref::steal(PySequence_Fast(pairs, "overlap: pairs must be a sequence"));
  if (!fast) return -1;
  if (PySequence_Fast_GET_SIZE(fast.get())) op.pairs.assign(n * n, Overlap::kNone);
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(fast.get()); k++) {
    Py_ssize_t i, j;
    int how;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast.get(), k), "nni:overlap", &i, &j, &how))
      return -1;
    if (i < 0 || j < 0 || (size_t)i >= n || (size_t)j >= n || i == j)
      return PyErr_SetString(PyExc_ValueError, "overlap: no such pair"), -1;
    if (how < (int)Overlap::kSome || how > (int)Overlap::kFromStartOfTwo)
      return PyErr_SetString(PyExc_ValueError, "overlap: 1 to 4 is needed"), -1;
    op.pairs[std::min(i, j) * n + std::max(i, j)] = (Overlap)how;
  }
  return 0;
}

int Builder::fill(Op& op, PyObject* const* args) {
  switch (op.code) {
    case Code::kType:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyType_Type, &op.x);
    case Code::kSmallInt: return operand(args[0], &op.operand);
    case Code::kIs:
    case Code::kLeaf: op.x = args[1]; return operand(args[0], &op.operand);
    case Code::kSame: return operand(args[0], &op.operand) < 0 ? -1 : operand(args[1], &op.second);
    case Code::kDistinct: {
      if (operand_list(args[0], &op.operands) < 0) return -1;
      if (!PyTuple_Check(args[1]))
        return PyErr_SetString(PyExc_TypeError, "distinct: a tuple of objects is needed"), -1;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++)
        op.objects.push_back(PyTuple_GET_ITEM(args[1], i));
      std::sort(op.objects.begin(), op.objects.end());
      return 0;
    }
    case Code::kDictGet:
      op.x = args[2];
      op.hash = key_hash(op.x);
      if (op.hash == -1 || operand(args[1], &op.operand) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kDictAbsent:
      op.x = args[1];
      op.hash = key_hash(op.x);
      return op.hash == -1 ? -1 : operand(args[0], &op.operand);
    case Code::kDictKeys:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyTuple_Type, &op.x);
    case Code::kSet: {
      if (operand(args[0], &op.operand) < 0) return -1;
      return expect(args[1], &PyTuple_Type, &op.x);
    }
    case Code::kGradient:
      if (!tensor_api()) return -1;
      [[fallthrough]];
    case Code::kInstDict:
      program_.owns = true;
      return operand(args[1], &op.operand) < 0 ? -1 : destination(args[0], &op.dst);
    case Code::kAttr:
      program_.owns = true;
      if (operand(args[1], &op.operand) < 0 || expect(args[2], &PyUnicode_Type, &op.x) < 0)
        return -1;
      return destination(args[0], &op.dst);
    case Code::kAttrAbsent:
      return operand(args[0], &op.operand) < 0 ? -1 : expect(args[1], &PyUnicode_Type, &op.x);
    case Code::kLen: return operand(args[0], &op.operand) < 0 ? -1 : size(args[1], &op.n);
    case Code::kItem:
      if (operand(args[1], &op.operand) < 0 || size(args[2], &op.n) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kItemAt:
      if (operand(args[1], &op.operand) < 0 || operand(args[2], &op.second) < 0) return -1;
      return destination(args[0], &op.dst);
    case Code::kDeque:
      program_.owns = true;
      if (operand(args[1], &op.operand) < 0 || size(args[2], &op.n) < 0) return -1;
      return op.n == 0 ? 0 : destination(args[0], &op.dst, op.n);
    case Code::kCell: return operand(args[1], &op.operand) < 0 ? -1 : destination(args[0], &op.dst);
    case Code::kCellEmpty: return operand(args[0], &op.operand);
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
  PyObject* name =
      PyTuple_Check(source) && PyTuple_GET_SIZE(source) ? PyTuple_GET_ITEM(source, 0) : nullptr;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "a check is a tuple that begins with its name, not %R", source);
    return -1;
  }
  for (const OpName& entry : kOps) {
    if (std::strcmp(entry.name, text) != 0) continue;
    if (PyTuple_GET_SIZE(source) != entry.size) {
      return PyErr_Format(PyExc_ValueError, "%s takes %zd values: %R", text, entry.size - 1,
                          source),
             -1;
    }
    program_.refs.add(source);
    Op op;
    op.code = entry.code;
    if (fill(op, ((PyTupleObject*)source)->ob_item + 1) < 0) return -1;
    program_.ops.push_back(std::move(op));
    return 0;
  }
  return PyErr_Format(PyExc_ValueError, "unknown check %s", text), -1;
}

}  // namespace

const char* op_name(Code code) {
  for (const OpName& entry : kOps) {
    if (entry.code == code) return entry.name;
  }
  return "?";
}

int build_program(Program& program, int nregs, PyObject* const* checks, Py_ssize_t n) {
  Builder builder(program, nregs);
  for (Py_ssize_t i = 0; i < n; i++) {
    if (builder.add(checks[i]) < 0) return -1;
  }
  return builder.finish();
}

}  // namespace magpy
