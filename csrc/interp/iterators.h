// C code that calls functions and advances iterators: map(abs, ..), filter(None, ..),
// itertools.accumulate(..), sorted(.., key=..).
//
// Owns: which types of iterators compute with what they are given, and the functions that stand in
// for their `tp_iternext` while the frame-evaluation hook is installed.  Each advances the iterator
// as its type does, tells the hook (session.h: ToCScope) what becomes of the values that Python
// frames give it meanwhile, and has the C function that it calls reported as if the program called
// it.  An iterator is advanced by anything, in C code that nobody watches and long after it was
// made, so this is done where it is advanced, and nothing about the objects themselves changes.
// Does not own: what a value that C code computes with means, nor what a call does
// (session_calls.cpp).  Called by frame_eval.cpp, probes.cpp and the events, GIL held.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// With the hook, counted there.  Neither raises; an exception that is set stays.
void watch_iterators();
void unwatch_iterators();

// C code gave `object` while the hook was installed: from now on its type is watched if it is an
// iterator's that may compute with what it is given.  False when there is no place for another
// type.
bool watch_if_iterator(PyObject* object);

// Whether calling `f` hands its arguments to a Python frame, whose result is that of the call.
bool runs_python(PyObject* f);

// Calls f.  A function written in C that `f` calls and does not keep (sorted(..,
// key=attrgetter(..))) is reported like the program's calls.
PyObject* call_reporting(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* kwnames);
bool calls_its_argument(PyObject* f);

int init_iterators(PyObject* module);

}  // namespace magpy
