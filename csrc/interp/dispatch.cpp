// See dispatch.h.
#include "dispatch.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <memory>
#include <optional>
#include <structmember.h>
#include <vector>

#include "errors.h"
#include "figures.h"
#include "frame_eval.h"
#include "guards.h"
#include "session.h"

namespace magpy {

namespace {

// What a mock returns to say "not this entry after all", and `on_miss` to say "run it eagerly".
PyObject* miss = nullptr;

// The methods of a contest.
PyObject *begin_name = nullptr, *end_name = nullptr;

// What a mock or `on_miss` returns for an exception to be raised with the traceback that it has.
struct RaiseObject {
  PyObject_HEAD PyObject* exception;
};

struct EntryObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  GuardObject* guard;
  PyObject* mock;
  PyObject* tag;
  long long hits;
  std::vector<int>* reads;  // the registers that the mock is given; null: the call's arguments
};

struct CompiledObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* wrapped;
  PyObject* on_miss;
  PyObject* entries;  // list of Entry
  PyObject* options;
  PyObject* driver;  // called in place of `wrapped` where no entry answers, unless None
  PyObject* driven;  // the code that the driver was made of, if `wrapped` is a Python function
  PyObject* contest;  // times calls that are served and eager ones, unless None
  PyObject* weakrefs;
  long long hits, misses, calls;
  long long whole;   // so many calls that no entry answers may be captured whole before the driver
  long long mixed;   // calls that a driver ran, in part by entries
  long long sample;  // the call to be sampled; 0: none
  char plain;
  char part;  // gives MISS instead of calling `wrapped`: its caller has the statements itself
};

// ---------------------------------------------------------------- Entry

// What the guard of an entry read for its mock.
class Given {
 public:
  explicit Given(const EntryObject* entry) {
    if (!entry->reads) return;
    count_ = entry->reads->size();
    if (count_ > kSmall) large_.resize(count_ + 1);
    values_ = (large_.empty() ? small_ : large_.data()) + 1;
    std::fill_n(values_, count_, nullptr);
    reads_.emplace(Reads{*entry->reads, values_});
  }
  ~Given() {
    for (size_t i = 0; i < count_; i++) Py_XDECREF(values_[i]);
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  const Reads* reads() const { return reads_ ? &*reads_ : nullptr; }
  PyObject* call(PyObject* mock) const {
    return PyObject_Vectorcall(mock, values_, count_ | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  }

 private:
  static constexpr size_t kSmall = 32;
  PyObject* small_[kSmall + 1];
  std::vector<PyObject*> large_;
  size_t count_ = 0;
  PyObject** values_ = nullptr;
  std::optional<Reads> reads_;
};

// Runs the mock if the guard holds: a new reference to what it gives, nullptr with an exception
// set, or MISS.
PyObject* run_entry(const EntryObject* entry, PyObject* const* args, size_t nargsf,
                    PyObject* kwnames, bool among_others) {
  const Given given(entry);
  const Py_ssize_t npos = PyVectorcall_NARGS(nargsf);
  if (!Guard_check(entry->guard, args, npos, kwnames, among_others, given.reads()))
    return Py_NewRef(miss);
  EntryRun run(thread_figures());
  PyObject* result = entry->reads ? given.call(entry->mock)
                                  : PyObject_Vectorcall(entry->mock, args, nargsf, kwnames);
  if (result != miss) run.served(entry->tag);
  return result;
}

PyObject* entry_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  return run_entry((EntryObject*)object, args, nargsf, kwnames, false);
}

// The registers in a tuple, or null with an exception set.
std::unique_ptr<std::vector<int>> registers_of(PyObject* reads) {
  if (reads == Py_None) return nullptr;
  if (!PyTuple_Check(reads))
    return PyErr_SetString(PyExc_TypeError, "reads must be a tuple of registers or None"), nullptr;
  auto found = std::make_unique<std::vector<int>>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); i++) {
    const long r = PyLong_AsLong(PyTuple_GET_ITEM(reads, i));
    if (r == -1 && PyErr_Occurred()) return nullptr;
    found->push_back((int)std::clamp(r, -1L, (long)INT_MAX));
  }
  return found;
}

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"guard", "mock", "reads", "tag", nullptr};
  PyObject *guard, *mock, *reads = Py_None, *tag = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OO:Entry", const_cast<char**>(names),
                                   &Guard_Type, &guard, &mock, &reads, &tag)) {
    return nullptr;
  }
  if (!PyCallable_Check(mock))
    return PyErr_SetString(PyExc_TypeError, "the mock function must be callable"), nullptr;
  std::unique_ptr<std::vector<int>> registers = registers_of(reads);
  if (!registers && reads != Py_None) return nullptr;
  if (registers && !Guard_fills((GuardObject*)guard, *registers))
    return PyErr_SetString(PyExc_ValueError, "the guard does not fill these registers"), nullptr;
  auto* self = (EntryObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->guard = (GuardObject*)Py_NewRef(guard);
  self->mock = Py_NewRef(mock);
  self->tag = Py_NewRef(tag);
  self->hits = 0;
  self->reads = registers.release();
  self->vectorcall = entry_vectorcall;
  return (PyObject*)self;
}

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = (EntryObject*)object;
  Py_VISIT(self->guard);
  Py_VISIT(self->mock);
  Py_VISIT(self->tag);
  return 0;
}

int entry_clear(PyObject* object) {
  auto* self = (EntryObject*)object;
  Py_CLEAR(self->guard);
  Py_CLEAR(self->mock);
  Py_CLEAR(self->tag);
  return 0;
}

void entry_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  entry_clear(object);
  delete ((EntryObject*)object)->reads;
  Py_TYPE(object)->tp_free(object);
}

PyMemberDef entry_members[] = {
    {"guard", T_OBJECT_EX, offsetof(EntryObject, guard), READONLY, "the Guard"},
    {"mock", T_OBJECT_EX, offsetof(EntryObject, mock), READONLY,
     "the function that stands in for the program"},
    {"tag", T_OBJECT, offsetof(EntryObject, tag), 0,
     "whatever the maker of the entry wants to find again"},
    {"hits", T_LONGLONG, offsetof(EntryObject, hits), 0, "how many calls this entry answered"},
    {nullptr, 0, 0, 0, nullptr},
};

// ---------------------------------------------------------------- Raise

PyTypeObject Raise_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* raise_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"", nullptr};
  PyObject* exception;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Raise", const_cast<char**>(names), &exception))
    return nullptr;
  if (!PyExceptionInstance_Check(exception))
    return PyErr_SetString(PyExc_TypeError, "an exception is needed"), nullptr;
  auto* self = (RaiseObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->exception = Py_NewRef(exception);
  return (PyObject*)self;
}

void raise_dealloc(PyObject* object) {
  Py_XDECREF(((RaiseObject*)object)->exception);
  Py_TYPE(object)->tp_free(object);
}

PyObject* raise_take(PyObject* object, PyObject*) {
  auto* self = (RaiseObject*)object;
  PyObject* exception = self->exception;
  self->exception = nullptr;
  return exception
             ? exception
             : (PyErr_SetString(PyExc_RuntimeError, "the exception was taken before"), nullptr);
}

PyMethodDef raise_methods[] = {
    {"take", raise_take, METH_NOARGS, "take(): the exception, which is held no longer."},
    {nullptr, nullptr, 0, nullptr},
};

// `result`, or nullptr with the exception set that it stands for.  Steals `result`.
PyObject* returned_or_raised(PyObject* result) {
  if (!result || !Py_IS_TYPE(result, &Raise_Type)) return result;
  Ref raised = Ref::steal(result);
  PyObject* value = raise_take(result, nullptr);
  raised.reset();
  if (!value) return nullptr;
  PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(value)), value, PyException_GetTraceback(value));
  return nullptr;
}

// ---------------------------------------------------------------- the call

// Puts `entry`, found at `index` or wherever it is by now, first; the others keep their order.
void move_to_front(PyObject* entries, Py_ssize_t index, PyObject* entry) {
  PyObject** items = ((PyListObject*)entries)->ob_item;
  if (index < PyList_GET_SIZE(entries) && items[index] == entry)
    std::rotate(items, items + index, items + index + 1);
}

PyObject* call_on_miss(CompiledObject* self, PyObject* const* args, Py_ssize_t npos,
                       PyObject* kwnames) {
  const Ref positional = Ref::steal(PyTuple_New(npos)), keywords = Ref::steal(PyDict_New());
  if (!positional || !keywords) return nullptr;
  for (Py_ssize_t i = 0; i < npos; i++) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < nkw; i++) {
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, i), args[npos + i]) < 0)
      return nullptr;
  }
  PyObject* values[] = {nullptr, (PyObject*)self, positional.get(), keywords.get()};
  const Ref on_miss = Ref::borrow(self->on_miss);
  return PyObject_Vectorcall(on_miss.get(), values + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             nullptr);
}

PyObject* call_wrapped(CompiledObject* self, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  const Ref wrapped = Ref::borrow(self->wrapped);
  return PyObject_Vectorcall(wrapped.get(), args, nargsf, kwnames);
}

// While it lives TorchDynamo, if it evaluates this thread's frames (torch.compile around what magpy
// compiled), lets them be: it would compile mock code, and magpy itself.
class DynamoOff {
 public:
  DynamoOff() {
    if (!foreign_evaluator()) return;
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* module =
        modules ? PyDict_GetItemString(modules, "torch._C._dynamo.eval_frame") : nullptr;
    set_ = Ref::steal(module ? PyObject_GetAttrString(module, "set_eval_frame") : nullptr);
    before_ = Ref::steal(set_ ? PyObject_CallOneArg(set_.get(), Py_None) : nullptr);
    PyErr_Clear();
  }
  ~DynamoOff() {
    if (!before_) return;
    ErrorGuard error;
    Ref::steal(PyObject_CallOneArg(set_.get(), before_.get()));
  }
  DynamoOff(const DynamoOff&) = delete;
  DynamoOff& operator=(const DynamoOff&) = delete;

 private:
  Ref set_, before_;
};

// Whether the guard of an entry holds and its mock answers the call: *result is new then, or
// nullptr with an exception set.
bool answered_by(CompiledObject* self, EntryObject* entry, PyObject* const* args, size_t nargsf,
                 PyObject* kwnames, bool several, PyObject** result) {
  *result = run_entry(entry, args, nargsf, kwnames, several);
  if (*result == miss) {
    Py_DECREF(*result);
    return false;
  }
  self->hits++;
  entry->hits++;
  return true;
}

// Whether an entry answers the call; *result as above.
bool answered(CompiledObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames,
              PyObject** result) {
  // The list may be replaced, and entries may go, while a guard or a mock runs: hold what is in
  // use.
  const Ref held = Ref::borrow(self->entries);
  PyObject* entries = held.get();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); i++) {
    if (!Py_IS_TYPE(PyList_GET_ITEM(entries, i), &Entry_Type)) continue;
    const Ref item = Ref::borrow(PyList_GET_ITEM(entries, i));
    const bool several = PyList_GET_SIZE(entries) > 1;
    if (!answered_by(self, (EntryObject*)item.get(), args, nargsf, kwnames, several, result))
      continue;
    if (i > 0) move_to_front(entries, i, item.get());
    return true;
  }
  return false;
}

// Counts the call of a driver: a hit if entries served all the regions that ran.
class DrivenCall {
 public:
  explicit DrivenCall(CompiledObject* self) : self_(self), before_(thread_figures()) {}
  ~DrivenCall() {
    const Figures& now = thread_figures();
    const bool served = now.served > before_.served;
    if (served && now.missed == before_.missed)
      self_->hits++;
    else if (served || now.added > before_.added)
      self_->mixed++;
  }
  DrivenCall(const DrivenCall&) = delete;
  DrivenCall& operator=(const DrivenCall&) = delete;

 private:
  CompiledObject* self_;
  const Figures before_;
};

// What an entry or a capture gives, an exception included; MISS where the call is to run eagerly.
PyObject* served(CompiledObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  DynamoOff off;
  PyObject* result = nullptr;
  if (answered(self, args, nargsf, kwnames, &result)) return returned_or_raised(result);
  self->misses++;
  thread_figures().missed++;
  result = call_on_miss(self, args, PyVectorcall_NARGS(nargsf), kwnames);
  return result == miss ? result : returned_or_raised(result);
}

// The Python function of a function or a method, or null.
PyFunctionObject* function_of(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? (PyFunctionObject*)callable : nullptr;
}

// Whether there is a driver of what `wrapped` is now: the program may have given it other code.
// The driver is given the defaults that the function has by now.
bool is_driven(CompiledObject* self) {
  if (!self->driver || self->driver == Py_None) return false;
  PyFunctionObject* function = function_of(self->wrapped);
  PyFunctionObject* driver = function_of(self->driver);
  if (!function || !driver) return true;
  if (function->func_code != self->driven) return false;
  auto* object = (PyObject*)driver;
  if (driver->func_defaults != function->func_defaults)
    PyFunction_SetDefaults(object, function->func_defaults ? function->func_defaults : Py_None);
  if (driver->func_kwdefaults != function->func_kwdefaults) {
    PyObject* given = function->func_kwdefaults;
    PyFunction_SetKwDefaults(object, given ? given : Py_None);
  }
  return true;
}

PyObject* called(CompiledObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (is_driven(self)) {
    DynamoOff off;
    // What entries served before a call of another kind was refused they go on to serve whole.
    PyObject* result = nullptr;
    if (answered(self, args, nargsf, kwnames, &result)) return returned_or_raised(result);
    if (self->whole > 0) {
      self->whole--;
      result = call_on_miss(self, args, PyVectorcall_NARGS(nargsf), kwnames);
      if (result != miss) return returned_or_raised(result);
      Py_DECREF(result);
      if (!is_driven(self)) return call_wrapped(self, args, nargsf, kwnames);
    }
    const DrivenCall counted(self);
    const Ref driver = Ref::borrow(self->driver);
    return PyObject_Vectorcall(driver.get(), args, nargsf, kwnames);
  }
  if (!self->plain) {
    PyObject* result = served(self, args, nargsf, kwnames);
    if (result != miss || self->part) return result;
    Py_DECREF(result);
  }
  return self->part ? Py_NewRef(miss) : call_wrapped(self, args, nargsf, kwnames);
}

// Likewise, and tells magpy/runtime how much of the call its entries did.
PyObject* sampled(CompiledObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const bool begun = begin_sample();
  Ref result = Ref::steal(called(self, args, nargsf, kwnames));
  const Ref found = begun ? end_sample() : Ref();
  self->sample = self->calls + 1;
  if (!result || !found) return result.release();
  const Ref used =
      Ref::steal(PyObject_CallMethod(self->options, "sampled", "OO", self, found.get()));
  if (!used) return nullptr;
  if (used.get() == Py_True) self->sample = self->calls * 3 + 1;  // odd after even
  return result.release();
}

// Tells a contest that a call is over: its result, or the contest itself where it raised.  False
// with an exception set.
bool ended(PyObject* contest, CompiledObject* self, PyObject* result) {
  PyObject* given[] = {nullptr, contest, (PyObject*)self, result};
  return static_cast<bool>(Ref::steal(PyObject_VectorcallMethod(
      end_name, given + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)));
}

// Likewise, or eagerly, as the contest says, which is told when the call is over.  No Python runs
// between the caller and `wrapped`.
PyObject* contested(CompiledObject* self, PyObject* const* args, size_t nargsf,
                    PyObject* kwnames) {
  const Ref contest = Ref::borrow(self->contest);
  const Ref turn = Ref::steal(PyObject_CallMethodOneArg(contest.get(), begin_name, (PyObject*)self));
  if (!turn) return nullptr;
  if (turn.get() == Py_None) return called(self, args, nargsf, kwnames);
  Ref result = Ref::steal(turn.get() == Py_True ? call_wrapped(self, args, nargsf, kwnames)
                                                : called(self, args, nargsf, kwnames));
  if (!result) {
    ErrorGuard error;  // what the call raises is raised
    if (!ended(contest.get(), self, contest.get())) PyErr_Clear();
    return nullptr;
  }
  return ended(contest.get(), self, result.get()) ? result.release() : nullptr;
}

PyObject* compiled_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  auto* self = (CompiledObject*)object;
  // Within a capture this call is a part of the outer one, and is not counted.
  if (tls_session != nullptr)
    return self->part ? Py_NewRef(miss) : call_wrapped(self, args, nargsf, kwnames);
  if (++self->calls == self->sample) return sampled(self, args, nargsf, kwnames);
  if (self->contest != Py_None) return contested(self, args, nargsf, kwnames);
  return called(self, args, nargsf, kwnames);
}

// ---------------------------------------------------------------- Compiled

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"wrapped", "on_miss", nullptr};
  PyObject *wrapped, *on_miss;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Compiled", const_cast<char**>(names), &wrapped,
                                   &on_miss))
    return nullptr;
  for (PyObject* callable : {wrapped, on_miss}) {
    if (!PyCallable_Check(callable))
      return PyErr_Format(PyExc_TypeError, "%R is not callable", callable), nullptr;
  }
  Ref entries = Ref::steal(PyList_New(0));
  if (!entries) return nullptr;
  auto* self = (CompiledObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->vectorcall = compiled_vectorcall;
  self->wrapped = Py_NewRef(wrapped);
  self->on_miss = Py_NewRef(on_miss);
  self->entries = entries.release();
  self->options = Py_NewRef(Py_None);
  self->driver = Py_NewRef(Py_None);
  self->driven = Py_NewRef(Py_None);
  self->contest = Py_NewRef(Py_None);
  return (PyObject*)self;
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = (CompiledObject*)object;
  Py_VISIT(self->wrapped);
  Py_VISIT(self->on_miss);
  Py_VISIT(self->entries);
  Py_VISIT(self->options);
  Py_VISIT(self->driver);
  Py_VISIT(self->driven);
  Py_VISIT(self->contest);
  return 0;
}

int compiled_clear(PyObject* object) {
  auto* self = (CompiledObject*)object;
  // Left callable: a finalizer of the same cycle may still call it.  None in place of what is gone
  // gives a TypeError there.
  for (PyObject** field : {&self->entries, &self->wrapped, &self->on_miss, &self->options,
                           &self->driver, &self->driven, &self->contest}) {
    PyObject* old = *field;
    *field = field == &self->entries ? PyList_New(0) : Py_NewRef(Py_None);
    if (!*field) {
      PyErr_Clear();
      *field = old;
      continue;
    }
    Py_XDECREF(old);
  }
  return 0;
}

void compiled_dealloc(PyObject* object) {
  auto* self = (CompiledObject*)object;
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  for (PyObject** field : {&self->entries, &self->wrapped, &self->on_miss, &self->options,
                           &self->driver, &self->driven, &self->contest})
    Py_CLEAR(*field);
  Py_TYPE(object)->tp_free(object);
}

PyObject* compiled_repr(PyObject* object) {
  int entered = Py_ReprEnter(object);
  if (entered != 0) return entered > 0 ? PyUnicode_FromString("<magpy.compile(...)>") : nullptr;
  PyObject* text = PyUnicode_FromFormat("<magpy.compile(%R)>", ((CompiledObject*)object)->wrapped);
  Py_ReprLeave(object);
  return text;
}

PyObject* compiled_descr_get(PyObject* object, PyObject* instance, PyObject* owner) {
  PyObject* wrapped = ((CompiledObject*)object)->wrapped;
  if (!instance || instance == Py_None) return Py_NewRef(object);
  if (PyFunction_Check(wrapped)) return PyMethod_New(object, instance);
  // What does not bind by itself (a builtin, an instance with __call__) does not start to when it
  // is compiled.
  descrgetfunc get = Py_TYPE(wrapped)->tp_descr_get;
  if (!get) return Py_NewRef(object);
  Ref bound = Ref::steal(get(wrapped, instance, owner));
  if (!bound) return nullptr;
  const bool is_self = bound.get() == wrapped;
  const bool is_method = PyMethod_Check(bound.get()) &&
                         PyMethod_GET_FUNCTION(bound.get()) == wrapped &&
                         PyMethod_GET_SELF(bound.get()) == instance;
  if (!is_self && !is_method) return bound.release();  // bound in its own way: that runs eagerly
  return is_self ? Py_NewRef(object) : PyMethod_New(object, instance);
}

// Own attributes; all others are the wrapped callable's.  Filled from the type's dict in init.
PyObject* own_names = nullptr;

bool is_own(PyObject* name) {
  int found = PySet_Contains(own_names, name);
  if (found < 0) PyErr_Clear();
  return found == 1;
}

PyObject* compiled_getattro(PyObject* object, PyObject* name) {
  PyObject* wrapped = ((CompiledObject*)object)->wrapped;
  if (is_own(name)) return PyObject_GenericGetAttr(object, name);
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
    // isinstance(c, types.FunctionType) answers as for the function; other callables keep their
    // class to themselves.
    return Py_NewRef((PyObject*)(PyFunction_Check(wrapped) ? Py_TYPE(wrapped) : Py_TYPE(object)));
  }
  return PyObject_GetAttr(wrapped, name);
}

int compiled_setattro(PyObject* object, PyObject* name, PyObject* value) {
  if (is_own(name)) return PyObject_GenericSetAttr(object, name, value);
  return PyObject_SetAttr(((CompiledObject*)object)->wrapped, name, value);
}

PyObject* compiled_reduce(PyObject* object, PyObject*) {
  const Ref module = Ref::steal(PyImport_ImportModule("magpy.runtime.pickling"));
  return module ? PyObject_CallMethod(module.get(), "reduce", "O", object) : nullptr;
}

PyObject* get_entries(PyObject* object, void*) {
  return Py_NewRef(((CompiledObject*)object)->entries);
}

int set_entries(PyObject* object, PyObject* value, void*) {
  if (!value || !PyList_Check(value))
    return PyErr_SetString(PyExc_TypeError, "entries must be a list"), -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++) {
    if (!Py_IS_TYPE(PyList_GET_ITEM(value, i), &Entry_Type)) {
      return PyErr_SetString(PyExc_TypeError, "entries must be a list of Entry"), -1;
    }
  }
  PyObject* copy = PyList_GetSlice(value, 0, PyList_GET_SIZE(value));
  if (!copy) return -1;
  auto* self = (CompiledObject*)object;
  if (PyList_GET_SIZE(copy) > PyList_GET_SIZE(self->entries)) thread_figures().added++;
  Py_SETREF(self->entries, copy);
  return 0;
}

PyObject* get_wrapped(PyObject* object, void*) {
  return Py_NewRef(((CompiledObject*)object)->wrapped);
}

// Named apart from what people put on functions: `f.calls += 1` is the function's own.
PyMemberDef compiled_members[] = {
    {"_magpy_options", T_OBJECT, offsetof(CompiledObject, options), 0, "how it was compiled"},
    {"_magpy_driven", T_OBJECT, offsetof(CompiledObject, driven), 0,
     "the code that the driver was made of"},
    {"_magpy_driver", T_OBJECT, offsetof(CompiledObject, driver), 0,
     "what is called in place of the function, or None"},
    {"_magpy_contest", T_OBJECT, offsetof(CompiledObject, contest), 0,
     "what times calls that are served and eager ones, or None"},
    {"_magpy_hits", T_LONGLONG, offsetof(CompiledObject, hits), 0, "calls that an entry answered"},
    {"_magpy_misses", T_LONGLONG, offsetof(CompiledObject, misses), 0,
     "calls that went to on_miss"},
    {"_magpy_calls", T_LONGLONG, offsetof(CompiledObject, calls), 0, "all calls"},
    {"_magpy_mixed", T_LONGLONG, offsetof(CompiledObject, mixed), 0,
     "calls of a driver that entries answered in part"},
    {"_magpy_whole", T_LONGLONG, offsetof(CompiledObject, whole), 0,
     "so many calls that no entry answers are asked to be captured whole before the driver"},
    {"_magpy_sample", T_LONGLONG, offsetof(CompiledObject, sample), 0,
     "the number of the call to be sampled next; 0: none is"},
    {"_magpy_plain", T_BOOL, offsetof(CompiledObject, plain), 0,
     "call the wrapped function and nothing else"},
    {"_magpy_part", T_BOOL, offsetof(CompiledObject, part), 0,
     "give MISS where the wrapped function would be called"},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef compiled_getset[] = {
    {"_magpy_entries", get_entries, set_entries, "the entries, most recently hit first", nullptr},
    {"_magpy_wrapped", get_wrapped, nullptr, "what was compiled", nullptr},
    {"__wrapped__", get_wrapped, nullptr, "what was compiled", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// _magpy_run(entry, args, kwargs): see _interp.pyi.  The call was counted as a miss.
PyObject* compiled_run(PyObject* object, PyObject* given) {
  auto* self = (CompiledObject*)object;
  PyObject *entry, *positional, *keywords;
  if (!PyArg_ParseTuple(given, "O!O!O!:_magpy_run", &Entry_Type, &entry, &PyTuple_Type, &positional,
                        &PyDict_Type, &keywords))
    return nullptr;
  const Ref kwnames =
      PyDict_GET_SIZE(keywords) ? Ref::steal(PySequence_Tuple(keywords)) : Ref::borrow(nullptr);
  if (!kwnames && PyErr_Occurred()) return nullptr;
  const Py_ssize_t npos = PyTuple_GET_SIZE(positional);
  std::vector<PyObject*> values{nullptr};  // room for the first argument
  for (Py_ssize_t i = 0; i < npos; i++) values.push_back(PyTuple_GET_ITEM(positional, i));
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(keywords, &at, &key, &value);) values.push_back(value);
  PyObject* result = nullptr;
  if (!answered_by(self, (EntryObject*)entry, values.data() + 1,
                   (size_t)npos | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames.get(), true, &result))
    return Py_NewRef(miss);
  self->misses--;
  thread_figures().missed--;
  return result;
}

PyMethodDef compiled_methods[] = {
    {"_magpy_run", compiled_run, METH_VARARGS, nullptr},
    {"__reduce__", compiled_reduce, METH_NOARGS,
     "Pickles and copies through magpy.runtime.pickling.reduce(self)."},
    {nullptr, nullptr, 0, nullptr},
};

// The names that Compiled answers itself.
int collect_own_names() {
  own_names = PySet_New(nullptr);
  if (!own_names) return -1;
  auto add = [](const char* name) {
    const Ref text = Ref::steal(PyUnicode_InternFromString(name));
    return text ? PySet_Add(own_names, text.get()) : -1;
  };
  for (const PyMemberDef* member = compiled_members; member->name; member++) {
    if (add(member->name) < 0) return -1;
  }
  for (const PyGetSetDef* getset = compiled_getset; getset->name; getset++) {
    if (add(getset->name) < 0) return -1;
  }
  for (const char* name : {"_magpy_run", "__reduce__", "__reduce_ex__", "__get__", "__call__",
                           "__repr__", "__hash__", "__eq__", "__ne__", "__getattribute__",
                           "__setattr__", "__delattr__", "__weakref__", "__sizeof__"}) {
    if (add(name) < 0) return -1;
  }
  return 0;
}

// ---------------------------------------------------------------- ModuleCall

// The `__call__` in the class of a compiled module: calls the Compiled that the module has in a
// slot of its own, without a frame. Bound like a function.
constexpr const char* kModuleSlot = "__magpy_callable__";

struct ModuleCallObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* slot;  // kModuleSlot
  PyObject* dict;
};

// The module's class may be another than the one that the compiled module's was made for. False
// with an exception set.
bool follows_module(PyObject* module, PyObject* compiled) {
  PyObject* bases = Py_TYPE(module)->tp_bases;
  if (!Py_IS_TYPE(compiled, &Compiled_Type) || !bases || PyTuple_GET_SIZE(bases) == 0) return true;
  PyObject* cls = PyTuple_GET_ITEM(bases, PyTuple_GET_SIZE(bases) - 1);
  if (cls == (PyObject*)Py_TYPE(((CompiledObject*)compiled)->wrapped)) return true;
  return static_cast<bool>(Ref::steal(PyObject_GetAttrString(module, "__class__")));
}

PyObject* module_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf);
  if (npos < 1)
    return PyErr_SetString(PyExc_TypeError, "__call__() needs a compiled module"), nullptr;
  // Whatever the module's class has to say about attributes.
  const Ref compiled =
      Ref::steal(PyObject_GenericGetAttr(args[0], ((ModuleCallObject*)object)->slot));
  if (!compiled || !follows_module(args[0], compiled.get())) return nullptr;
  return PyObject_Vectorcall(compiled.get(), args + 1, npos - 1, kwnames);
}

PyObject* module_call_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":ModuleCall", const_cast<char**>(names)))
    return nullptr;
  auto* self = (ModuleCallObject*)type->tp_alloc(type, 0);
  if (!self) return nullptr;
  self->vectorcall = module_call;
  self->slot = PyUnicode_InternFromString(kModuleSlot);
  if (!self->slot) Py_CLEAR(self);
  return (PyObject*)self;
}

int module_call_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(((ModuleCallObject*)object)->dict);
  return 0;
}

int module_call_clear(PyObject* object) {
  Py_CLEAR(((ModuleCallObject*)object)->dict);
  return 0;
}

void module_call_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  module_call_clear(object);
  Py_CLEAR(((ModuleCallObject*)object)->slot);
  Py_TYPE(object)->tp_free(object);
}

PyObject* module_call_get(PyObject* object, PyObject* instance, PyObject*) {
  return !instance || instance == Py_None ? Py_NewRef(object) : PyMethod_New(object, instance);
}

PyGetSetDef module_call_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* miss_repr(PyObject*) { return PyUnicode_FromString("MISS"); }

PyTypeObject Miss_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

PyTypeObject Compiled_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject Entry_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject ModuleCall_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* compiled_behind(PyObject* object) {
  if (Py_IS_TYPE(object, &Compiled_Type)) return ((CompiledObject*)object)->wrapped;
  // Whatever `__call__` is: one in Python may come here through super().
  static PyObject* slot = PyUnicode_InternFromString(kModuleSlot);
  if (!slot || !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE) ||
      !_PyType_Lookup(Py_TYPE(object), slot))
    return nullptr;
  const Ref compiled = Ref::steal(PyObject_GenericGetAttr(object, slot));
  if (!compiled) PyErr_Clear();
  return compiled && Py_IS_TYPE(compiled.get(), &Compiled_Type)
             ? compiled.get()
             : nullptr;  // held by the module's slot
}

int init_dispatch(PyObject* module) {
  Miss_Type.tp_name = "magpy._interp.Miss";
  Miss_Type.tp_basicsize = sizeof(PyObject);
  Miss_Type.tp_flags = Py_TPFLAGS_DEFAULT;
  Miss_Type.tp_repr = miss_repr;
  Miss_Type.tp_doc =
      "The type of MISS: what a mock returns when a value it computed went another way.";

  Raise_Type.tp_name = "magpy._interp.Raise";
  Raise_Type.tp_basicsize = sizeof(RaiseObject);
  Raise_Type.tp_flags = Py_TPFLAGS_DEFAULT;
  Raise_Type.tp_doc = "Raise(exception): what a mock returns for an exception to be raised.";
  Raise_Type.tp_new = raise_new;
  Raise_Type.tp_dealloc = raise_dealloc;
  Raise_Type.tp_methods = raise_methods;

  Entry_Type.tp_name = "magpy._interp.Entry";
  Entry_Type.tp_basicsize = sizeof(EntryObject);
  Entry_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  Entry_Type.tp_doc = "A guard and the mock function that may run while it holds.";
  Entry_Type.tp_vectorcall_offset = offsetof(EntryObject, vectorcall);
  Entry_Type.tp_call = PyVectorcall_Call;
  Entry_Type.tp_new = entry_new;
  Entry_Type.tp_dealloc = entry_dealloc;
  Entry_Type.tp_traverse = entry_traverse;
  Entry_Type.tp_clear = entry_clear;
  Entry_Type.tp_members = entry_members;

  Compiled_Type.tp_name = "magpy._interp.Compiled";
  Compiled_Type.tp_basicsize = sizeof(CompiledObject);
  Compiled_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  Compiled_Type.tp_doc = "A callable that runs the first entry whose guard holds.";
  Compiled_Type.tp_vectorcall_offset = offsetof(CompiledObject, vectorcall);
  Compiled_Type.tp_call = PyVectorcall_Call;
  Compiled_Type.tp_new = compiled_new;
  Compiled_Type.tp_dealloc = compiled_dealloc;
  Compiled_Type.tp_traverse = compiled_traverse;
  Compiled_Type.tp_clear = compiled_clear;
  Compiled_Type.tp_repr = compiled_repr;
  Compiled_Type.tp_getattro = compiled_getattro;
  Compiled_Type.tp_setattro = compiled_setattro;
  Compiled_Type.tp_descr_get = compiled_descr_get;
  Compiled_Type.tp_weaklistoffset = offsetof(CompiledObject, weakrefs);
  Compiled_Type.tp_members = compiled_members;
  Compiled_Type.tp_getset = compiled_getset;
  Compiled_Type.tp_methods = compiled_methods;

  ModuleCall_Type.tp_name = "magpy._interp.ModuleCall";
  ModuleCall_Type.tp_basicsize = sizeof(ModuleCallObject);
  ModuleCall_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_METHOD_DESCRIPTOR;
  ModuleCall_Type.tp_doc = "The __call__ of compiled modules.";
  ModuleCall_Type.tp_vectorcall_offset = offsetof(ModuleCallObject, vectorcall);
  ModuleCall_Type.tp_call = PyVectorcall_Call;
  ModuleCall_Type.tp_new = module_call_new;
  ModuleCall_Type.tp_dealloc = module_call_dealloc;
  ModuleCall_Type.tp_traverse = module_call_traverse;
  ModuleCall_Type.tp_clear = module_call_clear;
  ModuleCall_Type.tp_descr_get = module_call_get;
  ModuleCall_Type.tp_dictoffset = offsetof(ModuleCallObject, dict);
  ModuleCall_Type.tp_getset = module_call_getset;

  for (PyTypeObject* type :
       {&Miss_Type, &Raise_Type, &Entry_Type, &Compiled_Type, &ModuleCall_Type}) {
    if (PyType_Ready(type) < 0) return -1;
  }
  if (collect_own_names() < 0) return -1;
  begin_name = PyUnicode_InternFromString("begin");
  end_name = PyUnicode_InternFromString("end");
  if (!begin_name || !end_name) return -1;
  miss = PyObject_New(PyObject, &Miss_Type);
  if (!miss || PyModule_AddObjectRef(module, "MISS", miss) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Miss", (PyObject*)&Miss_Type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Raise", (PyObject*)&Raise_Type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Entry", (PyObject*)&Entry_Type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "ModuleCall", (PyObject*)&ModuleCall_Type) < 0) return -1;
  if (PyModule_AddStringConstant(module, "MODULE_SLOT", kModuleSlot) < 0) return -1;
  return PyModule_AddObjectRef(module, "Compiled", (PyObject*)&Compiled_Type);
}

}  // namespace magpy
