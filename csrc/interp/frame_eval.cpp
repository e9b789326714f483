// See frame_eval.h.  Two facts the implementation rests on:
//
// A frame that reaches the hook for the first time was pushed on top of the thread's data stack a moment ago, and none of its
// instructions has run.  So it is enough to exchange its code object for the twin, which has the same variables, and to make
// the top of the data stack leave room for the twin's slightly deeper value stack.  Popping the frame restores the top.
//
// Later frames of the same code, and generator objects (whose size comes from the function's code), have the room from the
// start, because making a twin also raises the original's co_stacksize.
#include "frame_eval.h"

#include <cstring>
#include <string>
#include <vector>

#include "compat.h"
#include "probes.h"
#include "session.h"

namespace magpy {
namespace {

using compat::Frame;

enum class State : unsigned char { kNew, kHasTwin, kIsTwin, kFailed };

// Hangs on a code object (co_extra).
struct CodeInfo {
  State state = State::kNew;
  bool skip = false;
  unsigned skip_epoch = 0;            // of `skip`; a new list of prefixes makes it stale
  PyCodeObject* twin = nullptr;       // owned; of an original
  PyCodeObject* original = nullptr;   // borrowed, cleared when the original dies; of a twin
};

Py_ssize_t extra_index = -1;
PyObject* instrument = nullptr;  // owned: the Python function code -> twin
std::vector<std::string> skip_prefixes;
unsigned skip_epoch = 1;
int installed = 0;
Py_ssize_t twins_made = 0, twin_frames = 0, failed_codes = 0, relocated = 0;  // for tests
bool everywhere = false;  // test mode: every frame of every thread, session or not
bool never_room = false;  // test mode: every frame is moved
_PyFrameEvalFunction previous = nullptr;

CodeInfo* get_info(PyCodeObject* code) {
  void* extra = nullptr;
  if (compat::code_get_extra(code, extra_index, &extra) < 0) {
    PyErr_Clear();
    return nullptr;
  }
  return static_cast<CodeInfo*>(extra);
}

CodeInfo* get_or_make_info(PyCodeObject* code) {
  CodeInfo* info = get_info(code);
  if (info != nullptr) return info;
  info = new CodeInfo;
  if (compat::code_set_extra(code, extra_index, info) < 0) {
    PyErr_Clear();
    delete info;
    return nullptr;
  }
  return info;
}

void free_info(void* p) {
  auto* info = static_cast<CodeInfo*>(p);
  if (info == nullptr) return;
  if (info->twin != nullptr) {
    CodeInfo* of_twin = get_info(info->twin);
    if (of_twin != nullptr) of_twin->original = nullptr;
    Py_DECREF(info->twin);
  }
  delete info;
}

bool matches_skip(PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) {
    PyErr_Clear();
    return false;
  }
  for (const std::string& prefix : skip_prefixes) {
    if (strncmp(name, prefix.c_str(), prefix.size()) == 0) return true;
  }
  return false;
}

// True when `twin` can run in a frame laid out for `code`; then takes over the description of the variables, which
// code.replace() cannot express completely (hidden locals of inlined comprehensions).
bool adopt(PyCodeObject* code, PyCodeObject* twin) {
  if (twin == code || twin->co_nlocalsplus != code->co_nlocalsplus) return false;
  Py_INCREF(code->co_localsplusnames);
  Py_SETREF(twin->co_localsplusnames, code->co_localsplusnames);
  Py_INCREF(code->co_localspluskinds);
  Py_SETREF(twin->co_localspluskinds, code->co_localspluskinds);
  twin->co_nlocals = code->co_nlocals;
  twin->co_ncellvars = code->co_ncellvars;
  twin->co_nfreevars = code->co_nfreevars;
#if PY_VERSION_HEX < 0x030C0000
  twin->co_nplaincellvars = code->co_nplaincellvars;
#endif
  return true;
}

// Calls the registered function; false (no exception set) when there is no twin.
bool make_twin(PyThreadState* ts, PyCodeObject* code, CodeInfo* info) {
  if (instrument == nullptr) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  ++tls_pause;
  // A trace function of the program shall not see magpy's own frames.
  PyThreadState_EnterTracing(ts);
  compat::recursion_credit(ts, +1);
  PyObject* made = PyObject_CallOneArg(instrument, reinterpret_cast<PyObject*>(code));
  compat::recursion_credit(ts, -1);
  PyThreadState_LeaveTracing(ts);
  --tls_pause;
  bool ok = false;
  if (made != nullptr && PyCode_Check(made)) {
    auto* twin = reinterpret_cast<PyCodeObject*>(made);
    CodeInfo* of_twin = adopt(code, twin) ? get_or_make_info(twin) : nullptr;
    if (of_twin != nullptr && info->twin == nullptr) {
      of_twin->state = State::kIsTwin;
      of_twin->original = code;
      compat::raise_stacksize(code, twin->co_stacksize);
      info->twin = twin;
      ++twins_made;
      made = nullptr;
      ok = true;
    } else if (info->twin != nullptr) {
      ok = true;  // another thread was faster
    }
  } else if (made == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) {
    if (getenv("MAGPY_DEBUG_INSTRUMENT") != nullptr) PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(code));
  }
  info->state = ok ? State::kHasTwin : State::kFailed;
  if (!ok) ++failed_codes;
  Py_XDECREF(made);
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return ok;
}

PyObject* run_plain(PyThreadState* ts, Frame* frame, int throwflag) {
  return previous != nullptr ? previous(ts, frame, throwflag) : _PyEval_EvalFrameDefault(ts, frame, throwflag);
}

// Gives `frame`, the newest on the data stack, room for `slots`; false when the stack's current chunk is full.
bool make_room(PyThreadState* ts, Frame* frame, Py_ssize_t slots) {
  PyObject** base = reinterpret_cast<PyObject**>(frame);
  PyObject** needed = base + slots;
  if (never_room) return false;
  if (ts->datastack_top >= needed) return true;
  if (base >= ts->datastack_top || needed >= ts->datastack_limit) return false;
  ts->datastack_top = needed;
  return true;
}

// The frame of the function that a probe is calling has started, and has its own references to the arguments.
void take_arguments() {
  Handover* handover = tls_handover;
  tls_handover = nullptr;
  for (Py_ssize_t i = 0; i < handover->count; ++i) Py_CLEAR(handover->items[i]);
}

PyObject* hook(PyThreadState* ts, Frame* frame, int throwflag) {
  if (tls_handover != nullptr && tls_handover->function == compat::frame_func(frame) && !compat::is_generator_frame(frame)) {
    take_arguments();
  }
  const bool session = active();
  if ((!session && !(everywhere && tls_pause == 0)) || throwflag || compat::is_generator_frame(frame)) {
    return run_plain(ts, frame, throwflag);
  }
  PyCodeObject* code = compat::frame_code(frame);
  CodeInfo* info = get_or_make_info(code);
  if (info == nullptr) {
    if (session) on_uninstrumented(code, "no memory");
    return run_plain(ts, frame, throwflag);
  }
  if (info->state == State::kIsTwin) return run_plain(ts, frame, throwflag);
  if (info->skip_epoch != skip_epoch) {
    info->skip = matches_skip(code);
    info->skip_epoch = skip_epoch;
  }
  if (info->skip) return run_plain(ts, frame, throwflag);
  if (info->state == State::kNew) make_twin(ts, code, info);
  if (info->state != State::kHasTwin) {
    if (session) on_uninstrumented(code, "the code could not be instrumented");
    return run_plain(ts, frame, throwflag);
  }
  ++twin_frames;
  if (session) {
    PyObject* first = code->co_argcount > 0 ? frame->localsplus[0] : nullptr;
    on_frame_enter(reinterpret_cast<PyFunctionObject*>(compat::frame_func(frame)), first);
  }
  const Py_ssize_t slots = compat::frame_slots(info->twin);
  if (make_room(ts, frame, slots)) {
    compat::frame_set_code(frame, info->twin);
    return run_plain(ts, frame, throwflag);
  }
  ++relocated;
  PyObject* result = nullptr;
  auto run = [ts, throwflag](Frame* copy) { return run_plain(ts, copy, throwflag); };
  if (compat::run_relocated(ts, frame, info->twin, slots, &result, run)) return result;
  if (session) on_uninstrumented(code, "no memory for its frame");
  return run_plain(ts, frame, throwflag);
}

// ---- Python-visible functions ----

PyObject* py_set_instrument(PyObject*, PyObject* f) {
  Py_INCREF(f);
  Py_XSETREF(instrument, f);
  Py_RETURN_NONE;
}

PyObject* py_set_skip_prefixes(PyObject*, PyObject* arg) {
  PyObject* list = PySequence_List(arg);
  if (list == nullptr) return nullptr;
  std::vector<std::string> prefixes;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const char* s = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
    if (s == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    prefixes.emplace_back(s);
  }
  Py_DECREF(list);
  skip_prefixes.swap(prefixes);
  ++skip_epoch;
  Py_RETURN_NONE;
}

PyObject* py_instrument_all(PyObject*, PyObject* arg) {
  long on = PyLong_AsLong(arg);
  if (on == -1 && PyErr_Occurred()) return nullptr;
  never_room = on == 2;
  if ((on != 0) != everywhere) {
    everywhere = on != 0;
    if (on) {
      if (hook_install() < 0) return nullptr;
    } else {
      hook_remove();
    }
  }
  Py_RETURN_NONE;
}

PyObject* py_hook_installed(PyObject*, PyObject*) { return PyLong_FromLong(installed); }

PyObject* py_hook_counts(PyObject*, PyObject*) {
  return Py_BuildValue("{s:n,s:n,s:n,s:n}", "twins", twins_made, "twin_frames", twin_frames, "failed", failed_codes, "relocated",
                       relocated);
}

// The twin of a code object, if it has one; of a twin: its original.
PyObject* other_of(PyObject* arg, bool want_twin) {
  if (!PyCode_Check(arg)) return PyErr_Format(PyExc_TypeError, "expected a code object, got %.100s", Py_TYPE(arg)->tp_name);
  CodeInfo* info = get_info(reinterpret_cast<PyCodeObject*>(arg));
  PyCodeObject* other = info == nullptr ? nullptr : want_twin ? info->twin : info->original;
  if (other == nullptr) Py_RETURN_NONE;
  return Py_NewRef(reinterpret_cast<PyObject*>(other));
}
PyObject* py_twin_of(PyObject*, PyObject* arg) { return other_of(arg, true); }
PyObject* py_original_of(PyObject*, PyObject* arg) { return other_of(arg, false); }

PyMethodDef methods[] = {
    {"set_instrument", py_set_instrument, METH_O, "set_instrument(f): f(code) -> twin makes the twins."},
    {"set_skip_prefixes", py_set_skip_prefixes, METH_O,
     "set_skip_prefixes(prefixes): frames whose file starts with one of them run as they are."},
    {"instrument_all", py_instrument_all, METH_O, "instrument_all(how): run every frame of the process as it is (0), with its twin (1), or with its twin in another place (2)."},
    {"hook_installed", py_hook_installed, METH_NOARGS, "How many times the hook is installed now."},
    {"hook_counts", py_hook_counts, METH_NOARGS, "What the hook did since the process started."},
    {"twin_of", py_twin_of, METH_O, "The twin of a code object, or None."},
    {"original_of", py_original_of, METH_O, "The code object that a twin was made from, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int hook_install() {
  if (installed++ > 0) return 0;
  PyInterpreterState* interp = PyInterpreterState_Get();
  _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
  previous = now == _PyEval_EvalFrameDefault || now == hook ? nullptr : now;
  _PyInterpreterState_SetEvalFrameFunc(interp, hook);
  return 0;
}

void hook_remove() {
  if (installed == 0 || --installed > 0) return;
  PyInterpreterState* interp = PyInterpreterState_Get();
  // Somebody may have put a hook on top of ours and call ours from it; then ours stays, and passes every frame on.
  if (_PyInterpreterState_GetEvalFrameFunc(interp) != hook) return;
  _PyInterpreterState_SetEvalFrameFunc(interp, previous != nullptr ? previous : _PyEval_EvalFrameDefault);
  previous = nullptr;
}

int init_frame_eval(PyObject* module) {
  extra_index = compat::request_code_extra(free_info);
  if (extra_index < 0) {
    PyErr_SetString(PyExc_ImportError, "magpy: the interpreter has no room for another user of code objects (co_extra)");
    return -1;
  }
  return PyModule_AddFunctions(module, methods);
}

}  // namespace magpy
