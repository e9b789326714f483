// The relative checks of a guard as a program: checks compiled once into a vector of `Op`, and run
// in every call.
//
// Owns: the form of the program, its building from the tuples that Guard is given
// (program_build.cpp) and its running (program.cpp).  Does not own: anchored checks (anchors.h) nor
// the guard as Python sees it (guards.cpp).  Called only by guards, with the GIL held.  Registers
// live on the C stack of the call.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <vector>

#include "tensor_api.h"

#include "anchors.h"

namespace magpy {

enum class Code : uint8_t {
  kType,
  kSmallInt,
  kIs,
  kLeaf,
  kSame,
  kDistinct,
  kDictGet,
  kDictAbsent,
  kDictKeys,
  kInstDict,
  kAttr,
  kAttrAbsent,
  kLen,
  kItem,
  kItemAt,
  kSet,
  kDeque,
  kCell,
  kCellEmpty,
  kFunc,
  kMethod,
  kTensor,
  kGradient,
  kOverlap,
  kPy,
};

// One relative check.  Operands are registers (>= 0) or constants (~index into Program::constants).
// Objects are borrowed from the tuple that it was made of, which the program keeps.
struct Op {
  Code code;
  int operand = 0;
  int second = 0;  // `same`, `item_at`
  int dst = 0, dst2 = 0;
  Py_ssize_t n = 0;
  Py_hash_t hash = 0;
  PyObject *x = nullptr, *y = nullptr, *z = nullptr;
  std::vector<int> operands;
  std::vector<PyObject*> objects;  // `distinct`: sorted by address
  std::vector<Overlap> pairs;  // `overlap`: upper triangle, row by row; empty when none overlaps
};

struct Program {
  Py_ssize_t npos = 0;
  PyObject* kwnames = nullptr;  // tuple
  int narguments = 0, nregisters = 0;
  bool owns =
      false;  // some check makes new references, or may drop some: registers hold strong ones
  size_t harmless = 0;  // so many checks at the beginning only look
  std::vector<Op> ops;
  std::vector<PyObject*> constants;
  RefList refs;
};

// Which registers the caller wants to have: `values` are new references once every check held.
struct Reads {
  const std::vector<int>& registers;
  PyObject** values;
};

// Compiles checks.  0, or -1 with an exception set.
int build_program(Program& program, int nregs, PyObject* const* checks, Py_ssize_t n);
// Whether every check holds for these arguments; if not, `failure` (which may be nullptr) tells of
// the first that does not.
bool run_program(const Program& program, PyObject* const* args, size_t n, Failure* failure,
                 const Reads* reads = nullptr);
// The name of a kind of check.
const char* op_name(Code code);

}  // namespace magpy
