// The frame-evaluation hook (PEP 523): runs every frame that starts while a capture is on with its
// instrumented twin.
//
// Owns: installing and removing the hook, the twin of each code object (cached on it), the list of
// files left alone.  Does not own: how a twin is made (magpy/instrument/rewrite.py, called once per
// code object) nor what the probes in it do (probes.cpp). The session installs and removes it.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magpy {

// Counted: each install needs one remove; the previous hook is restored by the last.  GIL held.  0,
// or -1 with an exception set.
int hook_install();
void hook_remove();

// False when something else has put its own hook in place of ours since (torch.compile does):
// frames then start unseen.
bool hook_in_charge();

// True while frames are evaluated by somebody else's hook, which may compile what it sees.
bool foreign_evaluator();

// How often another thread has taken the interpreter's lock than had it before.
unsigned long thread_switches();
int init_frame_eval(PyObject* module);

}  // namespace magpy
