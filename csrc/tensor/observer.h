// Watches which operators the dispatcher runs, for the few properties that a capture must know of.
//
// Owns: Observer (data-dependent results, dynamic shapes, use of a random generator, mutated
// arguments; how many operators Python called).  Does not own: the operator graph, which
// magpy/capture records above the dispatcher.  Used during captures, from Python, and in the calls
// that magpy/runtime/figures.py has the figures of (csrc/interp/figures.cpp).
#pragma once

#include <torch/csrc/python_headers.h>

namespace magpy {

int init_observer(PyObject* module);

}  // namespace magpy
