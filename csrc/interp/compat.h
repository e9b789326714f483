// What differs between CPython 3.11, 3.12 and 3.13 inside the interpreter.
//
// Owns: the only includes of CPython's internal headers, and small accessors with one meaning on
// every version.  Does not own: any policy; its users, frame_eval.cpp, probes.cpp and callers.cpp,
// hold that.  What differs in the instruction set lives in magpy/instrument/opcodes.py.
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
// C's atomics are not C++'s: the header has its integers by the compiler's own functions then.
#undef HAVE_STD_ATOMIC
#undef _PyGC_FINALIZED  // the internal header has it again
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#undef Py_BUILD_CORE

#include <cstring>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "magpy supports CPython 3.11, 3.12 and 3.13"
#endif

namespace magpy::compat {

using Frame = _PyInterpreterFrame;

// Handlers of signals run on the main thread only. Makes it none until it is given back; 0 on
// another thread.  With the GIL.
inline unsigned long take_main_thread() {
  const unsigned long here = PyThread_get_thread_ident();
  if (_PyRuntime.main_thread != here) return 0;
  _PyRuntime.main_thread = 0;
  return here;
}
inline void give_main_thread(unsigned long thread) { _PyRuntime.main_thread = thread; }

// How often the GIL has gone to another thread than had it before (Python/ceval_gil.c).  With the
// GIL.
inline unsigned long thread_switches() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyInterpreterState_Get()->ceval.gil->switch_number;
#else
  return _PyRuntime.ceval.gil.switch_number;
#endif
}

// Whether a signal has come for which no handler has run yet.
#if PY_VERSION_HEX >= 0x030D0000
inline bool signals_came() {
  return __atomic_load_n(&_PyRuntime.signals.is_tripped, __ATOMIC_RELAXED) != 0;
}
#else
inline bool signals_came() {
  return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0;
}
#endif

#if PY_VERSION_HEX >= 0x030D0000
inline Frame* current_frame(PyThreadState* ts) { return ts->current_frame; }
inline void set_current_frame(PyThreadState* ts, Frame* f) { ts->current_frame = f; }
inline PyCodeObject* frame_code(Frame* f) {
  return reinterpret_cast<PyCodeObject*>(f->f_executable);
}
inline PyObject* frame_func(Frame* f) { return f->f_funcobj; }
#elif PY_VERSION_HEX >= 0x030C0000
inline Frame* current_frame(PyThreadState* ts) { return ts->cframe->current_frame; }
inline void set_current_frame(PyThreadState* ts, Frame* f) { ts->cframe->current_frame = f; }
inline PyCodeObject* frame_code(Frame* f) { return f->f_code; }
inline PyObject* frame_func(Frame* f) { return f->f_funcobj; }
#else
inline Frame* current_frame(PyThreadState* ts) { return ts->cframe->current_frame; }
inline void set_current_frame(PyThreadState* ts, Frame* f) { ts->cframe->current_frame = f; }
inline PyCodeObject* frame_code(Frame* f) { return f->f_code; }
inline PyObject* frame_func(Frame* f) { return reinterpret_cast<PyObject*>(f->f_func); }
#endif

// False for the frames without code of the program that the interpreter pushes when C calls Python
// (3.12 and later).
#if PY_VERSION_HEX >= 0x030C0000
inline bool is_python_frame(Frame* f) { return f->owner != FRAME_OWNED_BY_CSTACK; }
#else
inline bool is_python_frame(Frame*) { return true; }
#endif

// True for a frame that lives in a generator, coroutine or asynchronous generator: it is being
// resumed.
inline bool is_generator_frame(Frame* f) { return f->owner == FRAME_OWNED_BY_GENERATOR; }

// Steals nothing: takes its own reference to `code`, drops the frame's to the old one, and makes
// the frame start at the first instruction of `code`.  Only for a frame that has not run yet.
inline void frame_set_code(Frame* f, PyCodeObject* code) {
  Py_INCREF(code);
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* old = f->f_executable;
  f->f_executable = reinterpret_cast<PyObject*>(code);
  f->instr_ptr = _PyCode_CODE(code);
#else
  PyCodeObject* old = f->f_code;
  f->f_code = code;
  f->prev_instr = _PyCode_CODE(code) - 1;
#endif
  Py_DECREF(old);
}

// The number of data-stack slots a frame of `code` takes.
inline Py_ssize_t frame_slots(PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030C0000
  return code->co_framesize;
#else
  return static_cast<Py_ssize_t>(FRAME_SPECIALS_SIZE) + code->co_nlocalsplus + code->co_stacksize;
#endif
}

// Makes every later frame of `code` have room for `stacksize` values.
inline void raise_stacksize(PyCodeObject* code, int stacksize) {
  int extra = stacksize - code->co_stacksize;
  if (extra <= 0) return;
  code->co_stacksize += extra;
#if PY_VERSION_HEX >= 0x030C0000
  code->co_framesize += extra;
#endif
}

// Runs `eval` on a copy of `frame` that has `slots` data-stack slots and starts at the first
// instruction of `code`.  For the rare frame that cannot grow in place.  Afterwards `frame` is as
// `eval` would have left it.  MemoryError leaves it untouched and returns false.
template <class Eval>
inline bool run_relocated(PyThreadState* ts, Frame* frame, PyCodeObject* code, Py_ssize_t slots,
                          PyObject** result, Eval eval) {
  const size_t used =
      sizeof(PyObject*) * (FRAME_SPECIALS_SIZE + static_cast<size_t>(code->co_nlocalsplus));
#if PY_VERSION_HEX >= 0x030C0000
  // The evaluation pops the frame it was given.  A frame at the start of a chunk takes its chunk
  // with it, so the copy gets a chunk of its own, from the allocator that the interpreter gives it
  // back to.
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  const size_t bytes = sizeof(PyObject*) * (static_cast<size_t>(slots) + 2048);
  auto* chunk = static_cast<_PyStackChunk*>(arena.alloc(arena.ctx, bytes));
  if (chunk == nullptr) return false;
  _PyStackChunk* below = ts->datastack_chunk;
  below->top = static_cast<size_t>(ts->datastack_top - &below->data[0]);
  chunk->previous = below;
  chunk->size = bytes;
  chunk->top = 0;
  auto* copy = reinterpret_cast<Frame*>(&chunk->data[0]);
  memcpy(static_cast<void*>(copy), frame, used);
  ts->datastack_chunk = chunk;
  ts->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(chunk) + bytes);
  ts->datastack_top = &chunk->data[0] + slots;
  frame_set_code(copy, code);
  *result = eval(copy);
  // The references went with the copy; of the frame only its place is left.
  ts->datastack_top = reinterpret_cast<PyObject**>(frame);
#else
  // The caller of the evaluation clears and pops the frame, so what is in the copy goes back.
  auto* copy = static_cast<Frame*>(PyMem_Malloc(sizeof(PyObject*) * static_cast<size_t>(slots)));
  if (copy == nullptr) return false;
  memcpy(static_cast<void*>(copy), frame, used);
  frame_set_code(copy, code);
  *result = eval(copy);
  memcpy(static_cast<void*>(frame), copy, used);
  if (frame->frame_obj != nullptr) frame->frame_obj->f_frame = frame;
  PyMem_Free(copy);
  (void)ts;
#endif
  return true;
}

// CPython 3.12 renamed these; the old names are deprecated macros there.
#if PY_VERSION_HEX >= 0x030C0000
inline Py_ssize_t request_code_extra(freefunc free) {
  return PyUnstable_Eval_RequestCodeExtraIndex(free);
}
inline int code_get_extra(PyCodeObject* code, Py_ssize_t index, void** out) {
  return PyUnstable_Code_GetExtra(reinterpret_cast<PyObject*>(code), index, out);
}
inline int code_set_extra(PyCodeObject* code, Py_ssize_t index, void* extra) {
  return PyUnstable_Code_SetExtra(reinterpret_cast<PyObject*>(code), index, extra);
}
#else
inline Py_ssize_t request_code_extra(freefunc free) { return _PyEval_RequestCodeExtraIndex(free); }
inline int code_get_extra(PyCodeObject* code, Py_ssize_t index, void** out) {
  return _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), index, out);
}
inline int code_set_extra(PyCodeObject* code, Py_ssize_t index, void* extra) {
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, extra);
}
#endif

// A type's own attributes.  New reference.
inline PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyType_GetDict(type);
#else
  return Py_NewRef(type->tp_dict);
#endif
}

// Gives (sign +1) or takes back (sign -1) recursion room, so that magpy's own Python code can run
// just below the limit.
inline void recursion_credit(PyThreadState* ts, int sign) {
  constexpr int kRoom = 200;
#if PY_VERSION_HEX >= 0x030C0000
  ts->py_recursion_remaining += sign * kRoom;
  ts->c_recursion_remaining += sign * kRoom;
#else
  ts->recursion_remaining += sign * kRoom;
#endif
}

// While it lives, the evaluation of a frame in a C call of its own does not count as C
// recursion.  3.11 has one limit for both.
class CRecursionCredit {
 public:
#if PY_VERSION_HEX >= 0x030C0000
  explicit CRecursionCredit(PyThreadState* ts) : ts_(ts) {
    ts_->c_recursion_remaining += kPerFrame;
  }
  ~CRecursionCredit() { ts_->c_recursion_remaining -= kPerFrame; }

 private:
  static constexpr int kPerFrame = 2;
  PyThreadState* ts_;
#else
  explicit CRecursionCredit(PyThreadState*) {}
#endif
};

// While it lives, little C recursion is left.
class CRecursionLimit {
 public:
#if PY_VERSION_HEX >= 0x030C0000
  explicit CRecursionLimit(PyThreadState* ts)
      : ts_(ts), taken_(ts->c_recursion_remaining > kLeft ? ts->c_recursion_remaining - kLeft : 0) {
    ts_->c_recursion_remaining -= taken_;
  }
  ~CRecursionLimit() { ts_->c_recursion_remaining += taken_; }

 private:
  static constexpr int kLeft = 200;
  PyThreadState* ts_;
  int taken_;
#else
  explicit CRecursionLimit(PyThreadState*) {}
#endif
};

}  // namespace magpy::compat
