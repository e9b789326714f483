// How far C functions look into what they are given: at which containers, and at what those hold.
//
// Owns: the one table of that, and of a search for a key.  Does not own: what a look reads of an
// object (session_state.cpp), nor which C functions look at all (magpy/models/callables.py, whose
// verdict comes first).  Called by session_calls.cpp with the GIL held.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace magpy {

enum class Look : uint8_t {
  kKept,    // at no element: they hand on the elements themselves, or something that holds them;
            // those stay known by their identity
  kItself,  // at which elements there are, and not at what these hold
  kPairs,   // at what the elements of its elements are
  kAll,
};

struct Looks {
  Look own;    // at what they are bound to
  Look given;  // at their arguments
  bool on;     // whether they hand on what functions and iterators give them, without a look at it
};

// Those of a C function in a call with `npos` arguments by position, and as many by name as
// `kwnames` (or nullptr) has.
Looks looks_of(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames);

// FORMAT_VALUE's and CONVERT_VALUE's.
enum Conversion : int { kNone = 0, kStr = 1, kRepr = 2, kAscii = 3 };

// Whether the text of a value is what a method of the program answers, as it is: what other objects
// make of it is computed.
bool text_in_python(PyObject* value, int conversion);

struct Session;

// A key is looked for in an outside dict, or stored: what the keys that are there hold is read
// where code of the program's may compare them, and all of the dict.  Returns `can_search`.
bool look_for_key(Session* s, PyObject* dict, PyObject* key);

// Whether the key may be looked for once more, which the program would notice if its own code
// compared the keys.
bool can_search(Session* s, PyObject* dict, PyObject* key);

// Whether code of the program's compares the keys of a dict, as far as `look_for_key` has seen.
bool compares_by_code(Session* s, PyObject* dict);

}  // namespace magpy
