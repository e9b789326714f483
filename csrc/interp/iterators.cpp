// See iterators.h.
#include "iterators.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "classes.h"
#include "dispatch.h"
#include "probes.h"
#include "session.h"
#include "session_impl.h"

namespace magpy {
namespace {

// The beginnings of CPython's iterators (Python/bltinmodule.c, Modules/itertoolsmodule.c), the same
// on 3.11 to 3.13.
struct MapObject {
  PyObject_HEAD PyObject* iterators;
  PyObject* function;
};
struct FilterObject {  // filterfalse, takewhile, dropwhile and starmap begin like it
  PyObject_HEAD PyObject* function;
  PyObject* iterator;
};
struct AccumulateObject {
  PyObject_HEAD PyObject* total;
  PyObject* iterator;
  PyObject* function;
};
struct GroupbyObject {
  PyObject_HEAD PyObject* iterator;
  PyObject* function;
};
struct GrouperObject {
  PyObject_HEAD PyObject* groupby;
  PyObject* target;
};

// Where an iterator has the function that it calls with the values.  The function may be missing
// (NULL, None).
enum class Calls : unsigned char { kNothing, kMap, kFilter, kAccumulate, kGroupby, kGrouper };

// How an iterator treats what it is given.
struct Manner {
  Calls calls;
  unsigned char with;     // a function: ToC
  unsigned char without;  // one
};

struct Watched {
  PyTypeObject* type;     // owned
  iternextfunc original;  // what the type says
  Manner manner;
};

constexpr size_t kMost = 64;
Watched watched[kMost];
size_t count = 0;
bool watching = false;

PyObject** function_of(Calls calls, PyObject* iterator) {
  switch (calls) {
    case Calls::kNothing: return nullptr;
    case Calls::kMap: return &reinterpret_cast<MapObject*>(iterator)->function;
    case Calls::kFilter: return &reinterpret_cast<FilterObject*>(iterator)->function;
    case Calls::kAccumulate: return &reinterpret_cast<AccumulateObject*>(iterator)->function;
    case Calls::kGroupby: return &reinterpret_cast<GroupbyObject*>(iterator)->function;
    case Calls::kGrouper: {
      PyObject* groupby = reinterpret_cast<GrouperObject*>(iterator)->groupby;
      return groupby == nullptr ? nullptr : &reinterpret_cast<GroupbyObject*>(groupby)->function;
    }
  }
  return nullptr;
}

// ---- functions written in C that C code calls ----

// Stands in for such a function, so that its calls are reported like those of the program.
struct Reported {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // owned
};

void reported_dealloc(PyObject* self) {
  Py_DECREF(reinterpret_cast<Reported*>(self)->function);
  PyObject_Free(self);
}

PyObject* reported_repr(PyObject* self) {
  return PyObject_Repr(reinterpret_cast<Reported*>(self)->function);
}

PyTypeObject reported_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* reported_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* function = reinterpret_cast<Reported*>(self)->function;
  if (!active()) return PyObject_Vectorcall(function, args, nargsf, kwnames);
  const unsigned char to_c = ToCScope::now();
  PyObject* result;
  {
    ToCScope given(kPassedOn, to_c);
    result = probed_vectorcall(function, args, nargsf, kwnames);
  }
  // It takes the place of a frame: its result goes to C code too.
  const ToC use = use_of_given(to_c, false);
  if (result != nullptr && active() && use != kPassedOn) on_value_to_c(result, use);
  return result;
}

// What C code shall call instead of `f`, or none when that is `f` itself, or with an exception.
Ref reported(PyObject* f) {
  if (Py_IS_TYPE(f, &reported_type) || !PyCallable_Check(f) || runs_python(f)) return Ref();
  auto* r = PyObject_New(Reported, &reported_type);
  if (r == nullptr) return Ref();
  r->vectorcall = reported_call;
  r->function = Py_NewRef(f);
  return Ref::steal(reinterpret_cast<PyObject*>(r));
}

// ---- advancing an iterator ----

PyObject* advance(const Watched& w, PyObject* iterator) {
  if (!active()) return w.original(iterator);
  const unsigned char to_c = ToCScope::now();
  PyObject** place = function_of(w.manner.calls, iterator);
  PyObject* function = place == nullptr || *place == Py_None ? nullptr : *place;
  const unsigned char use = function != nullptr ? w.manner.with : w.manner.without;
  // What it holds may have come there after it was made.
  if (use & (kComputed | kIterated)) on_advanced(iterator);
  // What whoever asks this iterator does with its values, and what it does itself.
  std::optional<ToCScope> given(std::in_place, (to_c & (kComputed | kIterated)) | use, to_c);
  const Ref instead = function == nullptr ? Ref() : reported(function);
  if (!instead && function != nullptr && PyErr_Occurred()) return nullptr;
  // Only meanwhile: the iterator is the program's, which may look at it.  Its own reference to the
  // function is ours till then.
  Ref function_held;
  if (instead) {
    function_held = Ref::steal(function);
    *place = Py_NewRef(instead.get());
  }
  PyObject* value = w.original(iterator);
  if (instead && *place == instead.get()) {  // else the iterator has let go of it
    *place = function_held.release();
    Py_DECREF(instead.get());
  }
  given.reset();
  if (value != nullptr && active() && !watch_if_iterator(value))
    on_uninstrumented(nullptr, "there are too many kinds of iterators");
  return value;
}

template <size_t i>
PyObject* next_of(PyObject* iterator) {
  return advance(watched[i], iterator);
}

template <size_t... i>
constexpr std::array<iternextfunc, sizeof...(i)> all_next(std::index_sequence<i...>) {
  return {next_of<i>...};
}
constexpr std::array<iternextfunc, kMost> stand_ins = all_next(std::make_index_sequence<kMost>());

// In the class and in those that inherit it from there, which have copies.
void exchange(PyTypeObject* type, iternextfunc from, iternextfunc to, int depth = 0) {
  if (type->tp_iternext == from) type->tp_iternext = to;
  const Ref below = Ref::steal(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__", "O", type));
  if (!below) return PyErr_Clear();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(below.get()) && depth < 50; ++i)
    exchange(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(below.get(), i)), from, to, depth + 1);
}

// The type whose C function advances the objects of `type`; nullptr where Python does, or nothing:
// classes have a function then too.
PyTypeObject* written_in_c(PyTypeObject* type) {
  static PyObject* str_next = PyUnicode_InternFromString("__next__");
  PyObject* found = str_next == nullptr || type->tp_iternext == nullptr
                        ? nullptr
                        : _PyType_Lookup(type, str_next);
  if (found == nullptr || !Py_IS_TYPE(found, &PyWrapperDescr_Type)) return nullptr;
  auto* descr = reinterpret_cast<PyWrapperDescrObject*>(found);
  return descr->d_wrapped == reinterpret_cast<void*>(type->tp_iternext) ? PyDescr_TYPE(descr)
                                                                        : nullptr;
}

bool add(PyTypeObject* type, Manner manner) {
  if (count == kMost) return false;
  Py_INCREF(type);
  watched[count] = {type, type->tp_iternext, manner};
  ++count;
  if (watching) exchange(type, watched[count - 1].original, stand_ins[count - 1]);
  return true;
}

constexpr Manner kUnknown = {Calls::kNothing, kComputed, kComputed};

// Those of itertools that pass on what they are given, or look at it when they are made.
bool passes_on(const char* name) {
  for (const char* other :
       {"islice", "cycle", "zip_longest", "_tee", "pairwise", "batched", "count", "repeat",
        "product", "combinations", "combinations_with_replacement", "permutations"})
    if (strcmp(name, other) == 0) return true;
  return false;
}

int add_itertools() {
  const Ref itertools = Ref::steal(PyImport_ImportModule("itertools"));
  if (!itertools) return -1;
  static const struct {
    const char* name;
    Manner manner;
  } known[] = {
      {"chain", {Calls::kNothing, kIterated, kIterated}},
      {"accumulate", {Calls::kAccumulate, kPassedOn, kComputed}},
      {"starmap", {Calls::kFilter, kIterated, kIterated}},
      {"filterfalse", {Calls::kFilter, kJudged, kComputed}},
      {"takewhile", {Calls::kFilter, kJudged, kJudged}},
      {"dropwhile", {Calls::kFilter, kJudged, kJudged}},
      {"groupby", {Calls::kGroupby, kJudged, kComputed}},
      {"_grouper", {Calls::kGrouper, kJudged, kComputed}},
  };
  PyObject *name, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(PyModule_GetDict(itertools.get()), &pos, &name, &value)) {
    auto* type = reinterpret_cast<PyTypeObject*>(value);
    if (!PyType_Check(value) || written_in_c(type) != type) continue;
    const char* text = PyUnicode_AsUTF8(name);
    if (text == nullptr) PyErr_Clear();
    if (text == nullptr || passes_on(text)) continue;
    Manner manner = kUnknown;
    for (const auto& k : known)
      if (strcmp(text, k.name) == 0) manner = k.manner;
    if (!add(type, manner)) break;
  }
  return 0;
}

// The name of a C function that calls a function which it is given, and does not keep it; or
// nullptr.
const char* caller_name(PyObject* f) {
  static constexpr struct {
    const char* home;  // its module; of a method: the type
    const char* name;
  } known[] = {{"builtins", "sorted"},     {"builtins", "min"},         {"builtins", "max"},
               {"_functools", "reduce"},   {"_bisect", "bisect_left"},  {"_bisect", "bisect_right"},
               {"_bisect", "insort_left"}, {"_bisect", "insort_right"}, {"list", "sort"},
               {"re.Pattern", "sub"},      {"re.Pattern", "subn"}};
  const PyMethodDef* definition = nullptr;
  const char* home = nullptr;
  if (PyCFunction_Check(f)) {
    auto* function = reinterpret_cast<PyCFunctionObject*>(f);
    definition = function->m_ml;
    if (function->m_self != nullptr && !PyModule_Check(function->m_self))
      home = c_base(Py_TYPE(function->m_self))->tp_name;
    else if (function->m_module != nullptr && PyUnicode_Check(function->m_module))
      home = PyUnicode_AsUTF8(function->m_module);
  } else if (Py_IS_TYPE(f, &PyMethodDescr_Type)) {
    definition = reinterpret_cast<PyMethodDescrObject*>(f)->d_method;
    home = PyDescr_TYPE(f)->tp_name;
  }
  if (home == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  for (const auto& k : known)
    if (strcmp(definition->ml_name, k.name) == 0 && strcmp(home, k.home) == 0) return k.name;
  return nullptr;
}

}  // namespace

void watch_iterators() {
  ErrorGuard error;
  watching = true;
  for (size_t i = 0; i < count; ++i) exchange(watched[i].type, watched[i].original, stand_ins[i]);
}

void unwatch_iterators() {
  ErrorGuard error;
  watching = false;
  for (size_t i = 0; i < count; ++i) exchange(watched[i].type, stand_ins[i], watched[i].original);
}

bool watch_if_iterator(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  iternextfunc next = type->tp_iternext;
  if (next == nullptr) return true;
  for (size_t i = 0; i < count; ++i) {
    if (next == stand_ins[i]) return true;
    if (next == watched[i].original) {  // a class that was made during this capture
      type->tp_iternext = stand_ins[i];
      return true;
    }
  }
  PyTypeObject* owner = written_in_c(type);
  if (owner == nullptr) return true;
  // The interpreter's other iterators pass on what they are given, and so do those of itertools
  // that init has left out.
  if (strchr(owner->tp_name, '.') == nullptr || strncmp(owner->tp_name, "itertools.", 10) == 0)
    return true;
  return add(owner, kUnknown);
}

bool runs_python(PyObject* f) {
  static PyObject* str_call = PyUnicode_InternFromString("__call__");
  for (int depth = 0; depth < 20; ++depth) {
    if (PyFunction_Check(f)) return true;
    PyTypeObject* type = Py_TYPE(f);
    if (PyMethod_Check(f) || (g_partial_type != nullptr && type == g_partial_type) ||
        type == &Compiled_Type) {
      const Bound bound = bound_parts(f);
      f = PyMethod_Check(f) ? bound.parts[1] : bound.parts[0];
      if (f == nullptr) return false;
      continue;
    }
    if (PyType_Check(f)) {
      // A class without a constructor in C.
      auto* cls = reinterpret_cast<PyTypeObject*>(f);
      return type == &PyType_Type && is_heap(cls) && cls->tp_new == PyBaseObject_Type.tp_new;
    }
    if (c_base(type) == type || str_call == nullptr) return false;
    f = _PyType_Lookup(type, str_call);
    if (f == nullptr) return false;
  }
  return false;
}

PyObject* call_reporting(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const char* name = active() ? caller_name(f) : nullptr;
  if (name == nullptr) return PyObject_Vectorcall(f, args, nargsf, kwnames);
  const Py_ssize_t npos = PyVectorcall_NARGS(nargsf),
                   nkw = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  // Other functions are given theirs by the name `key`.
  const Py_ssize_t first = strcmp(name, "reduce") == 0 ? 1 : strncmp(name, "sub", 3) == 0 ? 2 : 0;
  std::vector<PyObject*> given(args, args + npos + nkw);
  std::vector<Ref> made;
  for (Py_ssize_t i = 0; i < npos + nkw; ++i) {
    if (i >= first && i < npos) continue;
    Ref instead = reported(given[i]);
    if (!instead && PyErr_Occurred()) return nullptr;
    if (!instead) continue;
    given[i] = instead.get();
    made.push_back(std::move(instead));
  }
  return PyObject_Vectorcall(f, given.data(), npos, kwnames);
}

bool calls_its_argument(PyObject* f) { return caller_name(f) != nullptr; }

int init_iterators(PyObject*) {
  reported_type.tp_name = "magpy._interp.Reported";
  reported_type.tp_basicsize = sizeof(Reported);
  reported_type.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  reported_type.tp_vectorcall_offset = offsetof(Reported, vectorcall);
  reported_type.tp_call = PyVectorcall_Call;
  reported_type.tp_dealloc = reported_dealloc;
  reported_type.tp_repr = reported_repr;
  if (PyType_Ready(&reported_type) < 0) return -1;
  add(&PyMap_Type, {Calls::kMap, kPassedOn, kPassedOn});
  add(&PyFilter_Type, {Calls::kFilter, kJudged, kComputed});
  add(&PyCallIter_Type, {Calls::kFilter, kComputed, kComputed});
  return add_itertools();
}

}  // namespace magpy
