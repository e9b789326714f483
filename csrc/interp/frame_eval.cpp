// See frame_eval.h.  Facts the implementation rests on:
//
// A frame that reaches the hook for the first time was pushed on top of the thread's data stack a
// moment ago, and none of its instructions has run.  So it is enough to exchange its code object
// for the twin, which has the same variables, and to make the top of the data stack leave room for
// the twin's slightly deeper value stack.  Popping the frame restores the top.
//
// Later frames of the same code, and generator objects (whose size comes from the function's code),
// have the room from the start, because making a twin also raises the original's co_stacksize.
//
// A program that looks at its frames shall find its own code objects: the attributes f_code,
// f_lasti, tb_lasti, gi_code, cr_code and ag_code answer for the original, also after the capture
// (a generator keeps running its twin).  The interpreter itself, in C, works with the twin and the
// offsets in it, which carry the original's locations.
#include "frame_eval.h"

#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "compat.h"
#include "errors.h"
#include "iterators.h"
#include "probes.h"
#include "signals.h"
#include "session.h"

namespace magpy {
namespace {

using compat::Frame;

enum class State : unsigned char { kNew, kHasTwin, kIsTwin, kFailed };

// Hangs on a code object (co_extra).
struct CodeInfo {
  State state = State::kNew;
  bool skip = false;
  unsigned skip_epoch = 0;           // of `skip`; a new list of prefixes makes it stale
  Ref twin;                          // of an original: a code object
  PyCodeObject* original = nullptr;  // borrowed, cleared when the original dies; of a twin
  Ref offsets;  // for each code unit of a twin, that of the original (bytes of uint32), when asked
                // for

  PyCodeObject* twin_code() const { return reinterpret_cast<PyCodeObject*>(twin.get()); }
};

Py_ssize_t extra_index = -1;
PyObject* instrument = nullptr;  // owned: the Python function code -> twin
PyObject* offsets_of = nullptr;  // owned: the Python function code -> CodeInfo::offsets of its twin
PyCodeObject* shows_warnings =
    nullptr;  // owned: of the function that the interpreter calls to show a warning
std::vector<std::string> skip_prefixes;
unsigned skip_epoch = 1;
int installed = 0;
Py_ssize_t twins_made = 0, twin_frames = 0, failed_codes = 0, relocated = 0;  // for tests
bool everywhere = false;  // test mode: every frame of every thread, session or not
bool never_room = false;  // test mode: every frame is moved
_PyFrameEvalFunction previous = nullptr;

PyObject* hook(PyThreadState* ts, Frame* frame, int throwflag);

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
  if (PyCodeObject* twin = info->twin_code()) {
    CodeInfo* of_twin = get_info(twin);
    if (of_twin != nullptr) of_twin->original = nullptr;
  }
  delete info;
}

bool matches_skip(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* function = file == nullptr ? nullptr : PyUnicode_AsUTF8(code->co_qualname);
  if (function == nullptr) {
    PyErr_Clear();
    return false;
  }
  const std::string name = std::string(file) + ':' + function;
  for (const std::string& prefix : skip_prefixes) {
    if (name.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return false;
}

// True when `twin` can run in a frame laid out for `code`; then takes over the description of the
// variables, which code.replace() cannot express completely (hidden locals of inlined
// comprehensions).
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

// Calls one of magpy's own Python functions so that the program does not notice.  None, and no
// exception, where it fails.
Ref call_quietly(PyThreadState* ts, PyObject* function, PyCodeObject* code) {
  if (function == nullptr) return Ref();
  ErrorGuard error;
  ++tls_pause;
  // A trace function of the program shall not see magpy's own frames.
  PyThreadState_EnterTracing(ts);
  // Nor shall the program's finalizers run here, where nothing is watched.
  const int collecting = PyGC_Disable();
  compat::recursion_credit(ts, +1);
  hold_signals();
  Ref result = Ref::steal(PyObject_CallOneArg(function, reinterpret_cast<PyObject*>(code)));
  release_signals();
  compat::recursion_credit(ts, -1);
  if (collecting) PyGC_Enable();
  PyThreadState_LeaveTracing(ts);
  --tls_pause;
  if (!result) {
    static const bool debug = getenv("MAGPY_DEBUG_INSTRUMENT") != nullptr;
    if (debug) PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(code));
    PyErr_Clear();
  }
  return result;
}

// Makes the twin of `code`; without one, info->state says so.
void make_twin(PyThreadState* ts, PyCodeObject* code, CodeInfo* info) {
  Ref made = call_quietly(ts, instrument, code);
  if (info->state != State::kNew) return;  // another thread was faster
  info->state = State::kFailed;
  if (made && PyCode_Check(made.get())) {
    auto* twin = reinterpret_cast<PyCodeObject*>(made.get());
    CodeInfo* of_twin = adopt(code, twin) ? get_or_make_info(twin) : nullptr;
    if (of_twin != nullptr) {
      of_twin->state = State::kIsTwin;
      of_twin->original = code;
      // Nothing in it refers back; and a program that counts the collector's objects shall not find
      // one more.
      if (PyObject_GC_IsTracked(twin->co_consts)) PyObject_GC_UnTrack(twin->co_consts);
      compat::raise_stacksize(code, twin->co_stacksize);
      info->twin = std::move(made);
      info->state = State::kHasTwin;
      ++twins_made;
      return;
    }
  }
  ++failed_codes;
}

// ---- the C stack ----
//
// While any hook is installed the interpreter evaluates every Python call in a C call of its own: a
// recursion of Python functions uses the C stack, and CPython 3.12+ counts it against a second,
// smaller limit.  A program shall not meet that limit because it is being captured, so the hook
// takes the count back while there is stack left; near its end the hook steps aside and the calls
// below are evaluated without C recursion again.

constexpr size_t kStackReserve = 512 * 1024;

// How many bytes of this thread's C stack are left.
size_t stack_room() {
#ifdef __linux__
  static thread_local char* lowest = nullptr;
  if (lowest == nullptr) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
    void* address = nullptr;
    size_t size = 0;
    pthread_attr_getstack(&attributes, &address, &size);
    pthread_attr_destroy(&attributes);
    lowest = static_cast<char*>(address);
  }
  char* here = static_cast<char*>(__builtin_frame_address(0));
  return here > lowest ? static_cast<size_t>(here - lowest) : 0;
#else
  return 0;
#endif
}

// The frame that was handed to the evaluator before ours.  Where that one was installed again on
// top of ours, it hands it back.
thread_local Frame* tls_handed = nullptr;

PyObject* evaluate(PyThreadState* ts, Frame* frame, int throwflag) {
  if (previous == nullptr) return _PyEval_EvalFrameDefault(ts, frame, throwflag);
  Frame* before = tls_handed;
  tls_handed = frame;
  PyObject* result = previous(ts, frame, throwflag);
  tls_handed = before;
  return result;
}

PyObject* run_plain(PyThreadState* ts, Frame* frame, int throwflag) {
  if (stack_room() >= kStackReserve) {
    compat::CRecursionCredit credit(ts);
    return evaluate(ts, frame, throwflag);
  }
  if (active())
    on_uninstrumented(compat::frame_code(frame), "the recursion is too deep to be watched");
  if (installed > 1) {
    // Another thread may be capturing and needs the hook.
    compat::CRecursionLimit limit(ts);
    return evaluate(ts, frame, throwflag);
  }
  PyInterpreterState* interp = PyInterpreterState_Get();
  _PyInterpreterState_SetEvalFrameFunc(interp, _PyEval_EvalFrameDefault);
  PyObject* result = _PyEval_EvalFrameDefault(ts, frame, throwflag);
  if (installed > 0) _PyInterpreterState_SetEvalFrameFunc(interp, hook);
  return result;
}

// Gives `frame`, the newest on the data stack, room for `slots`; false when the stack's current
// chunk is full.
bool make_room(PyThreadState* ts, Frame* frame, Py_ssize_t slots) {
  PyObject** base = reinterpret_cast<PyObject**>(frame);
  PyObject** needed = base + slots;
  if (never_room) return false;
  if (ts->datastack_top >= needed) return true;
  if (base >= ts->datastack_top || needed >= ts->datastack_limit) return false;
  ts->datastack_top = needed;
  return true;
}

// The frame of the function that a probe is calling has started, and has its own references to the
// arguments.
void take_arguments() {
  Handover* handover = tls_handover;
  tls_handover = nullptr;
  for (Py_ssize_t i = 0; i < handover->count; ++i) Py_CLEAR(handover->items[i]);
}

// A warning is shown by code written in C, or below a call for its effect.
PyObject* run_showing(PyThreadState* ts, Frame* frame) {
  on_warning();
  const bool below = tls_below;
  ++tls_pause;
  tls_below = true;
  PyObject* result = run_plain(ts, frame, 0);
  tls_below = below;
  --tls_pause;
  return result;
}

// A handler of a signal starts, (signum, frame) or a method: what it does is no part of what the
// program does in every call.
bool signal_handled(Frame* frame) {
  if (compat::is_generator_frame(frame)) return false;
  const int count = compat::frame_code(frame)->co_argcount;
  for (int i = 0; i < 2 && i + 1 < count; ++i) {
    PyObject *number = frame->localsplus[i], *at = frame->localsplus[i + 1];
    if (number != nullptr && at != nullptr && PyLong_CheckExact(number) && PyFrame_Check(at))
      return on_handler(compat::frame_func(frame), number);
  }
  return false;
}

PyObject* run_unwatched(PyThreadState* ts, Frame* frame) {
  ++tls_pause;
  PyObject* result = run_plain(ts, frame, 0);
  --tls_pause;
  return result;
}

PyObject* run_watched(PyThreadState* ts, Frame* frame, int throwflag) {
  if (tls_handover != nullptr && tls_handover->function == compat::frame_func(frame) &&
      !compat::is_generator_frame(frame)) {
    take_arguments();
  }
  if (tls_session != nullptr && compat::frame_code(frame) == shows_warnings && !throwflag)
    return run_showing(ts, frame);
  if (tls_below && tls_session != nullptr && !throwflag && !compat::is_generator_frame(frame))
    on_frame_below(compat::frame_func(frame));
  const bool session = active();
  if (session && !throwflag && signal_handled(frame)) return run_unwatched(ts, frame);
  if ((!session && !(everywhere && tls_pause == 0)) || throwflag ||
      compat::is_generator_frame(frame)) {
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
  const Py_ssize_t slots = compat::frame_slots(info->twin_code());
  if (make_room(ts, frame, slots)) {
    compat::frame_set_code(frame, info->twin_code());
    return run_plain(ts, frame, throwflag);
  }
  ++relocated;
  PyObject* result = nullptr;
  auto run = [ts, throwflag](Frame* copy) { return run_plain(ts, copy, throwflag); };
  if (compat::run_relocated(ts, frame, info->twin_code(), slots, &result, run)) return result;
  if (session) on_uninstrumented(code, "no memory for its frame");
  return run_plain(ts, frame, throwflag);
}

PyObject* hook(PyThreadState* ts, Frame* frame, int throwflag) {
  if (frame == tls_handed) return _PyEval_EvalFrameDefault(ts, frame, throwflag);
  if (!active()) return run_watched(ts, frame, throwflag);
  // The frame is gone when its result is known.
  auto* code = compat::frame_code(frame);
  const Ref held = Ref::borrow(reinterpret_cast<PyObject*>(code));
  const Ref func = Ref::borrow(compat::frame_func(frame));
  PyObject* self =
      code->co_argcount > 0 && !compat::is_generator_frame(frame) ? frame->localsplus[0] : nullptr;
  const Ref type =
      Ref::borrow(self == nullptr ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(self)));
  const unsigned char to_c = ToCScope::now();
  const ToC use = use_of_given(to_c, compat::is_generator_frame(frame));
  PyObject* result;
  {
    ToCScope given(kPassedOn, to_c);
    result = run_watched(ts, frame, throwflag);
  }
  if (result != nullptr && active()) {
    CodeInfo* info = get_info(code);
    // What this frame returns or yields may go to C code that computes with it.
    if (info == nullptr || !info->skip) {
      if (use != kPassedOn)
        on_value_to_c(result, use);
      else if (type)
        on_result(func.get(), reinterpret_cast<PyTypeObject*>(type.get()), result);
    }
  }
  return result;
}

// ---- what a program sees of its frames ----

// `code` when it is not a twin.  New reference.
PyObject* shown_code(PyObject* code) {
  if (code == nullptr || !PyCode_Check(code)) return Py_XNewRef(code);
  CodeInfo* info = get_info(reinterpret_cast<PyCodeObject*>(code));
  PyObject* original = info == nullptr ? nullptr : reinterpret_cast<PyObject*>(info->original);
  return Py_NewRef(original != nullptr ? original : code);
}

struct Offsets {
  const uint32_t* data = nullptr;
  size_t size = 0;
};

// For each code unit of the twin `code`, its original's; empty when `code` is no twin.
Offsets twin_offsets(PyCodeObject* code) {
  CodeInfo* info = get_info(code);
  if (info == nullptr || info->original == nullptr) return {};
  if (!info->offsets) {
    Ref offsets = call_quietly(PyThreadState_Get(), offsets_of, info->original);
    if (!offsets || !PyBytes_Check(offsets.get())) return {};
    info->offsets = std::move(offsets);
  }
  // The data of a bytes object is aligned to 32 bytes from its start.
  const auto* data = reinterpret_cast<const uint32_t*>(PyBytes_AS_STRING(info->offsets.get()));
  return {data, static_cast<size_t>(PyBytes_GET_SIZE(info->offsets.get())) / sizeof(uint32_t)};
}

constexpr int kUnit = sizeof(_Py_CODEUNIT);

// The byte offset in the original that a byte offset in `code` stands for.
int shown_offset(PyCodeObject* code, int offset) {
  if (offset < 0) return offset;
  const auto offsets = twin_offsets(code);
  const auto unit = static_cast<size_t>(offset / kUnit);
  return unit < offsets.size ? static_cast<int>(offsets.data[unit]) * kUnit + offset % kUnit
                             : offset;
}

// The byte offset in `code` that shows as `offset`.
int hidden_offset(PyCodeObject* code, int offset) {
  if (offset < 0) return offset;
  const auto offsets = twin_offsets(code);
  const auto unit = static_cast<uint32_t>(offset / kUnit);
  for (size_t i = 0; i < offsets.size; ++i) {
    if (offsets.data[i] >= unit) return static_cast<int>(i) * kUnit + offset % kUnit;
  }
  return offset;
}

// An attribute of one of the interpreter's types whose getter is wrapped.
struct Wrapped {
  PyTypeObject* type;
  const char* name;
  getter get;
  PyGetSetDef definition;  // ours
  getter original;
};

PyObject* get_code(PyObject* self, void* closure);
PyObject* get_frame_lasti(PyObject* self, void* closure);

Wrapped wrapped[] = {
    {&PyFrame_Type, "f_code", get_code, {}, nullptr},
    {&PyFrame_Type, "f_lasti", get_frame_lasti, {}, nullptr},
    {&PyGen_Type, "gi_code", get_code, {}, nullptr},
    {&PyCoro_Type, "cr_code", get_code, {}, nullptr},
    {&PyAsyncGen_Type, "ag_code", get_code, {}, nullptr},
};

PyObject* call_wrapped(PyObject* self, void* closure) {
  auto* w = static_cast<Wrapped*>(closure);
  return w->original(self, nullptr);
}

Ref frame_code(PyFrameObject* frame) {
  return Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
}

PyObject* get_code(PyObject* self, void* closure) {
  const Ref code = Ref::steal(call_wrapped(self, closure));
  return shown_code(code.get());
}

PyObject* get_frame_lasti(PyObject* self, void* closure) {
  const Ref value = Ref::steal(call_wrapped(self, closure));
  if (!value) return nullptr;
  const long offset = PyLong_AsLong(value.get());
  const Ref code = frame_code(reinterpret_cast<PyFrameObject*>(self));
  return PyLong_FromLong(
      shown_offset(reinterpret_cast<PyCodeObject*>(code.get()), static_cast<int>(offset)));
}

PyObject* get_traceback_lasti(PyObject* self, void*) {
  auto* tb = reinterpret_cast<PyTracebackObject*>(self);
  const Ref code = frame_code(tb->tb_frame);
  return PyLong_FromLong(shown_offset(reinterpret_cast<PyCodeObject*>(code.get()), tb->tb_lasti));
}

newfunc traceback_new = nullptr;

PyObject* py_function_of(PyObject*, PyObject* frame) {
  if (!PyFrame_Check(frame))
    return PyErr_Format(PyExc_TypeError, "a frame is expected, not %s", Py_TYPE(frame)->tp_name);
  PyObject* f = compat::frame_func(reinterpret_cast<PyFrameObject*>(frame)->f_frame);
  return Py_NewRef(f != nullptr && PyFunction_Check(f) ? f : Py_None);
}

// types.TracebackType(next, frame, lasti, lineno): the program gives the offset as it sees it.
PyObject* new_traceback(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* self = traceback_new(type, args, kwargs);
  if (self == nullptr) return nullptr;
  auto* tb = reinterpret_cast<PyTracebackObject*>(self);
  const Ref code = frame_code(tb->tb_frame);
  tb->tb_lasti = hidden_offset(reinterpret_cast<PyCodeObject*>(code.get()), tb->tb_lasti);
  return self;
}

PyGetSetDef traceback_lasti = {"tb_lasti", get_traceback_lasti, nullptr, nullptr, nullptr};

int show_originals() {
  for (Wrapped& w : wrapped) {
    const Ref dict = Ref::steal(compat::type_dict(w.type));
    PyObject* descr = PyDict_GetItemString(dict.get(), w.name);  // borrowed
    // A plain member shows the function's code, which is the original (gi_code in 3.11).
    if (descr == nullptr || !Py_IS_TYPE(descr, &PyGetSetDescr_Type)) continue;
    auto* getset = reinterpret_cast<PyGetSetDescrObject*>(descr);
    if (getset->d_getset->closure != nullptr) continue;
    w.definition = *getset->d_getset;
    w.original = w.definition.get;
    w.definition.get = w.get;
    w.definition.closure = &w;
    getset->d_getset = &w.definition;
  }
  if (traceback_new == nullptr) {
    traceback_new = PyTraceBack_Type.tp_new;
    PyTraceBack_Type.tp_new = new_traceback;
  }
  const Ref descr = Ref::steal(PyDescr_NewGetSet(&PyTraceBack_Type, &traceback_lasti));
  if (!descr) return -1;
  const Ref dict = Ref::steal(compat::type_dict(&PyTraceBack_Type));
  const int err = PyDict_SetItemString(dict.get(), "tb_lasti", descr.get());
  PyType_Modified(&PyTraceBack_Type);
  return err;
}

// ---- Python-visible functions ----

PyObject* py_set_instrument(PyObject*, PyObject* args) {
  PyObject *make, *offsets;
  if (!PyArg_ParseTuple(args, "OO", &make, &offsets)) return nullptr;
  Py_INCREF(make);
  Py_XSETREF(instrument, make);
  Py_INCREF(offsets);
  Py_XSETREF(offsets_of, offsets);
  Py_RETURN_NONE;
}

PyObject* py_set_shows_warnings(PyObject*, PyObject* code) {
  if (!PyCode_Check(code) || reinterpret_cast<PyCodeObject*>(code)->co_argcount != 1)
    return PyErr_Format(PyExc_TypeError, "not the code of a function of one argument: %R", code);
  Py_INCREF(code);
  Py_XSETREF(shows_warnings, reinterpret_cast<PyCodeObject*>(code));
  Py_RETURN_NONE;
}

PyObject* py_set_skip_prefixes(PyObject*, PyObject* arg) {
  const Ref list = Ref::steal(PySequence_List(arg));
  if (!list) return nullptr;
  std::vector<std::string> prefixes;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    const char* s = PyUnicode_AsUTF8(PyList_GET_ITEM(list.get(), i));
    if (s == nullptr) return nullptr;
    prefixes.emplace_back(s);
  }
  skip_prefixes.swap(prefixes);
  ++skip_epoch;
  Py_RETURN_NONE;
}

PyObject* py_skip_prefixes(PyObject*, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (const std::string& prefix : skip_prefixes) {
    const Ref s = Ref::steal(
        PyUnicode_FromStringAndSize(prefix.data(), static_cast<Py_ssize_t>(prefix.size())));
    if (!s || PyList_Append(list.get(), s.get()) < 0) return nullptr;
  }
  return list.release();
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
  return Py_BuildValue("{s:n,s:n,s:n,s:n}", "twins", twins_made, "twin_frames", twin_frames,
                       "failed", failed_codes, "relocated", relocated);
}

// The twin of a code object, if it has one; of a twin: its original.
PyObject* other_of(PyObject* arg, bool want_twin) {
  if (!PyCode_Check(arg))
    return PyErr_Format(PyExc_TypeError, "expected a code object, got %.100s",
                        Py_TYPE(arg)->tp_name);
  CodeInfo* info = get_info(reinterpret_cast<PyCodeObject*>(arg));
  PyCodeObject* other = info == nullptr ? nullptr : want_twin ? info->twin_code() : info->original;
  if (other == nullptr) Py_RETURN_NONE;
  return Py_NewRef(reinterpret_cast<PyObject*>(other));
}
PyObject* py_twin_of(PyObject*, PyObject* arg) { return other_of(arg, true); }
PyObject* py_original_of(PyObject*, PyObject* arg) { return other_of(arg, false); }

PyMethodDef methods[] = {
    {"set_instrument", py_set_instrument, METH_VARARGS,
     "set_instrument(make, offsets): make(code) -> twin; offsets(code) -> for each code unit of "
     "the twin, the original's (uint32)."},
    {"set_shows_warnings", py_set_shows_warnings, METH_O,
     "set_shows_warnings(code): the interpreter calls it to show a warning."},
    {"set_skip_prefixes", py_set_skip_prefixes, METH_O,
     "set_skip_prefixes(prefixes): frames run as they are whose \"file:function\" starts with one."},
    {"skip_prefixes", py_skip_prefixes, METH_NOARGS,
     "The prefixes of the files that run as they are."},
    {"instrument_all", py_instrument_all, METH_O,
     "instrument_all(how): run every frame of the process as it is (0), with its twin (1), or with "
     "its twin in another place (2)."},
    {"hook_installed", py_hook_installed, METH_NOARGS, "How many times the hook is installed now."},
    {"hook_counts", py_hook_counts, METH_NOARGS, "What the hook did since the process started."},
    {"twin_of", py_twin_of, METH_O, "The twin of a code object, or None."},
    {"original_of", py_original_of, METH_O, "The code object that a twin was made from, or None."},
    {"function_of", py_function_of, METH_O,
     "The function that a frame runs, or None if it runs no function."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

unsigned long thread_switches() { return compat::thread_switches(); }

int hook_install() {
  if (installed++ > 0) return 0;
  PyInterpreterState* interp = PyInterpreterState_Get();
  _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
  previous = now == _PyEval_EvalFrameDefault || now == hook ? nullptr : now;
  _PyInterpreterState_SetEvalFrameFunc(interp, hook);
  watch_iterators();
  return 0;
}

void hook_remove() {
  if (installed == 0 || --installed > 0) return;
  unwatch_iterators();
  PyInterpreterState* interp = PyInterpreterState_Get();
  // Somebody may have put a hook on top of ours and call ours from it; then ours stays, and passes
  // every frame on.
  if (_PyInterpreterState_GetEvalFrameFunc(interp) != hook) return;
  _PyInterpreterState_SetEvalFrameFunc(interp,
                                       previous != nullptr ? previous : _PyEval_EvalFrameDefault);
  previous = nullptr;
}

bool foreign_evaluator() {
  _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
  return now != _PyEval_EvalFrameDefault && now != hook;
}

bool hook_in_charge() {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == hook;
}

int init_frame_eval(PyObject* module) {
  extra_index = compat::request_code_extra(free_info);
  if (extra_index < 0) {
    PyErr_SetString(
        PyExc_ImportError,
        "magpy: the interpreter has no room for another user of code objects (co_extra)");
    return -1;
  }
  if (show_originals() < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace magpy
