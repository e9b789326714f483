// The capture session as the probes see it: which events there are and what they mean.
//
// Owns: the set of outside objects of the running capture, the event log and the snapshots
// (session_state.cpp).  Does not own: how a frame is instrumented (frame_eval,
// magpy/instrument/rewrite.py) nor how an operation is performed (probes).  Called by the probes
// and by the frame-evaluation hook, always with the GIL held.
//
// Contract for callers.  Every `on_*` function is called only while `active()` is true.  None of
// them raises: a failure inside is kept in the session (the capture is dropped, the program goes
// on).  They may be called with an exception set only where the comment says so; they save and
// restore it themselves.  Arguments are borrowed.  "pre" events come before the operation, "post"
// events after it succeeded.  A function that returns PyObject* steals `result` and returns what
// the probe shall give to the program (a new reference, usually `result` itself); with result ==
// nullptr semantics stated there.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ref.h"

namespace magpy {

// These three are the state of a thread: the hook finds them when a frame begins, the dispatcher
// when a compiled function is called.
struct Session;
// The session of this thread, or nullptr.  A plain thread-local read.
extern thread_local Session* tls_session;
// > 0 while the session's own Python code, or a call recorded as a whole, is running: no event is
// wanted then, and frames that start then run with their own code object.
extern thread_local int tls_pause;
// A call for its effect or autograd's engine runs, and the session wants to know which functions
// start in it.
extern thread_local bool tls_below;
inline bool active() { return tls_session != nullptr && tls_pause == 0; }
// What the C function that the current frame has called does with what frames give it; kPassedOn
// again below such a frame.
enum ToC : unsigned char {
  kPassedOn = 0,
  kComputed = 1,  // it computes with all values
  kJudged = 2,    // it computes with what functions answer, and passes on what generators yield
  kIterated = 4,  // it iterates over what it is given
};
// What holds for the C code that runs now on this thread, from the beginning of the scope to its
// end, where `after` does.  It is of the thread because the interpreter stands between the probe
// that calls C code and the hook that sees a frame begin below it, and takes nothing along.
class ToCScope {
 public:
  explicit ToCScope(unsigned char to_c, unsigned char after = kPassedOn) : after_(after) {
    now_ = to_c;
  }
  ~ToCScope() { now_ = after_; }
  ToCScope(const ToCScope&) = delete;
  ToCScope& operator=(const ToCScope&) = delete;

  static unsigned char now() { return now_; }
  // For an instruction of the interpreter's between two probes: until the second one.
  static void set(unsigned char to_c) { now_ = to_c; }

 private:
  static inline thread_local unsigned char now_ = kPassedOn;
  const unsigned char after_;
};
// What the session gives before an operation.
struct Before {
  PyObject* result =
      nullptr;  // new, or nullptr with an exception set, where the session has performed it
  bool performed = false;
  ToC use = kPassedOn;  // what the operation does with what frames give it
};
// What is given to such C code, by a generator's frame or by a function.
inline ToC use_of_given(unsigned char to_c, bool generator) {
  if ((to_c & kComputed) || ((to_c & kJudged) && !generator)) return kComputed;
  return static_cast<ToC>(to_c & kIterated);
}
// C code uses `value` (borrowed) so.
void on_value_to_c(PyObject* value, ToC use);
// An iterator written in C is about to compute with what it is given by others, which may be lists.
void on_advanced(PyObject* iterator);
// A frame of `func`, called with a first argument of type `self`, gives `value`.  What stands
// behind a slot such as
// `__index__` or `__len__` gives it to C code that computes with it.
void on_result(PyObject* func, PyTypeObject* self, PyObject* value);

// A Python frame of `func` starts (called by the hook, before its first instruction; not for
// resumed generators). `first_arg` is the value of its first positional parameter or nullptr.
void on_frame_enter(PyFunctionObject* func, PyObject* first_arg);
// A Python frame of `func` starts below such a call, unwatched.
void on_frame_below(PyObject* func);
// A function is called with a number and a frame: true where it is the handler of that signal, and
// nothing of it is wanted.
bool on_handler(PyObject* func, PyObject* number);
// A warning is about to be shown.
void on_warning();
// The hook could not give a frame its twin.  `why` is a static string.  The session is then
// dropped.
void on_uninstrumented(PyCodeObject* code, const char* why);

// obj.name gave `value` (post), or raised AttributeError (value == nullptr; the exception is set
// and must survive). Steals value and returns what to give.
PyObject* on_attr_load(PyObject* obj, PyObject* name, PyObject* value, PyObject* getter = nullptr);
// Whether attributes of such an object are given by a function of C that its class names
// (`__getattr__ = dict.__getitem__`).
bool is_looked_up_by_c(PyObject* obj);
// A property is about to be loaded whose getter is no Python function: it, to be called by the
// caller, or none.
Ref on_getter(PyObject* obj, PyObject* name);
// obj.name = value, or del obj.name when value == nullptr (pre).
void on_attr_store(PyObject* obj, PyObject* name, PyObject* value);

// A global (or builtin, or class-body/exec name that came from globals/builtins) gave `value`
// (post).  `globals` and `builtins` are the frame's dicts. Steals value and returns what to give.
// A global, a builtin or a name of a module is about to be looked up (pre): that it is not there is
// known before.
void on_global_access(PyObject* globals, PyObject* builtins, PyObject* name);
void on_import_access(PyObject* module, PyObject* name);
PyObject* on_global_load(PyObject* globals, PyObject* builtins, PyObject* name, PyObject* value);
// A global is about to be stored or deleted (pre).
void on_global_store(PyObject* globals, PyObject* name, PyObject* value);
// A name in a class body or exec'd code is about to be read from, stored to or deleted from
// `locals` (pre).
void on_name_access(PyObject* locals, PyObject* name);

// A closure cell gave `value` (post; value may be nullptr when it was empty and NameError was
// raised).
void on_cell_load(PyObject* cell, PyObject* value);
void on_cell_store(PyObject* cell, PyObject* value);  // pre; nullptr: it is emptied

// obj[key] is about to be read (pre).
ToC on_item_load_pre(PyObject* obj, PyObject* key);
// Whether that makes what it gives: a defaultdict asks its factory for what is missing (pre).
bool makes_item(PyObject* obj, PyObject* key);
// obj[key] gave value (post), or raised (value == nullptr; exception set and must survive).
PyObject* on_item_load(PyObject* obj, PyObject* key, PyObject* result, bool made);
ToC on_item_store(PyObject* obj, PyObject* key, PyObject* value);  // pre; value == nullptr is del

// item in container (pre: before; post: with the outcome 0/1).
// Whether `item in container` is to be done as one comparison after another: of a few numbers, some
// of which are followed, each comparison is a condition of its own.
bool compares_numbers(PyObject* container, PyObject* item);
void on_contains_pre(PyObject* container, PyObject* item);
void on_contains(PyObject* container, PyObject* item, int outcome);

// The interpreter is about to look into obj as a whole (pre): iteration start, unpacking, extending
// a list/set/dict from it, matching it, formatting it, `with` it, comparing it.
enum class Touch { kIter, kUnpack, kExtend, kMatch, kFormat, kWith, kCompare };
// The exception that is being handled is asked for.
void on_handled();
void on_touch(PyObject* obj, Touch how);
// An element of a set or a key of a dict is about to be hashed and compared with what is there
// (pre).
void on_hashed(PyObject* key);
// Truth value of obj is about to be taken by a jump or `not` (pre).
void on_truth(PyObject* obj);

// a OP b, -a, not a, a < b (pre, then post).  `op` is the CPython NB_* number, or for
// unary/compare/in-place see probes.h. post returns the object to give to the program (steals
// result).
Before on_binary_pre(int op, PyObject* a, PyObject* b);
PyObject* on_binary(int op, PyObject* a, PyObject* b, PyObject* result);
Before on_compare_pre(int op, PyObject* a, PyObject* b);
PyObject* on_compare(int op, PyObject* a, PyObject* b, PyObject* result);
// a is b, two ints that are not one object here: would they be one if nobody watched?
bool on_identity(PyObject* a, PyObject* b);
PyObject* on_unary(int op, PyObject* a, PyObject* result);
// An operation on these (b may be null) raised: that it does is sure for these very values only.
void on_raised(PyObject* a, PyObject* b);

// A call (pre).  `args` is a vector of npos positional values followed by the keyword values named
// in kwnames (tuple or nullptr).
Before on_call_pre(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames);
// post (also when pre performed it and it succeeded).  Steals result.
PyObject* on_call(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames,
                  PyObject* result);
// The call raised (exception set, must survive).
void on_call_raised(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames);

// iter(obj) gave `iterator` (post; on_touch(kIter) came before).
void on_iter(PyObject* obj, PyObject* iterator);
// FOR_ITER took `value` from `iterator` (post).  Steals value, returns what to give.
PyObject* on_next(PyObject* iterator, PyObject* value);

// Text made by an f-string: parts (a tuple of the values formatted) and the resulting str.  Steals
// result.
PyObject* on_format(PyObject* value, PyObject* spec, int conversion, PyObject* result);
PyObject* on_build_string(PyObject* const* parts, Py_ssize_t n, PyObject* result);

// The program made a function object (post).
void on_make_function(PyObject* func);
// `import name` gave `module` (post): the module of that name, or its outermost package.
void on_import(PyObject* module, PyObject* name);
// Reading a generator/coroutine/iterator that existed before is visible to the session through
// on_touch/on_next.

int init_session(PyObject* module);

}  // namespace magpy
