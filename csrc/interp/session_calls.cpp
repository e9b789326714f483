// What the probes report of calls: what the session does before and after a C function runs.
//
// Owns: on_call_pre, on_call and on_call_raised of session.h, and the cache of verdicts on C
// functions.  Does not own: the verdicts (magpy/models/callables.py) nor the operations on outside
// objects (session_state.cpp).  Called by the probes with the GIL held.

#include <cstring>

#include "classes.h"
#include "dispatch.h"
#include "iterators.h"
#include "looks.h"
#include "session_impl.h"
#include "tables.h"

namespace magpy {

namespace {

// A slot of a type: which slot, all types share the description of that, and the C function that
// fills it.
void* slot_key(PyWrapperDescrObject* descr) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(descr->d_base) *
                                     0x9E3779B97F4A7C15ull ^
                                 reinterpret_cast<uintptr_t>(descr->d_wrapped));
}

}  // namespace

uint8_t classify(Session* s, PyObject* f) {
  void* key = nullptr;
  PyTypeObject* t = Py_TYPE(f);
  if (PyFunction_Check(f)) {
    if (!g_leaf_code.empty()) {
      auto it = g_leaf_code.find(reinterpret_cast<PyFunctionObject*>(f)->func_code);
      if (it != g_leaf_code.end()) return it->second;
    }
    return kLeafFrame;
  }
  if (PyMethod_Check(f)) return classify(s, PyMethod_GET_FUNCTION(f));
  bool cache = true;
  if (PyCFunction_Check(f)) {
    key = reinterpret_cast<PyCFunctionObject*>(f)->m_ml;
    // pybind functions share nothing but live as long as their module: a static method table
    // outlives everything.
    if (t != &PyCFunction_Type && t != &PyCMethod_Type) key = f;
    PyObject* self = reinterpret_cast<PyCFunctionObject*>(f)->m_self;
    if (self != nullptr && !PyModule_Check(self) && PyCapsule_CheckExact(self)) cache = false;
    // All classes share one description of `__new__`.
    if (self != nullptr && PyType_Check(self) && is_builtin(f, "__new__")) {
      if (is_heap(reinterpret_cast<PyTypeObject*>(self))) cache = false;
      key = reinterpret_cast<char*>(self) + 2;
    }
  } else if (t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type) {
    key = reinterpret_cast<PyMethodDescrObject*>(f)->d_method;
  } else if (t == &PyWrapperDescr_Type) {
    key = slot_key(reinterpret_cast<PyWrapperDescrObject*>(f));
  } else if (t == g_method_wrapper_type) {
    // What a bound slot does is the slot's, whoever it is bound to.
    key = slot_key(reinterpret_cast<WrapperObject*>(f)->descr);
  } else if (PyType_Check(f)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(f);
    if (is_heap(as_type)) cache = false;
    key = f;
  } else {
    // What these do is what they hold.
    if (is_heap(t) || t == &PyStaticMethod_Type || t == &Py_GenericAliasType) cache = false;
    key = reinterpret_cast<char*>(t) + 1;  // calling an instance is not calling the type
  }
  if (cache) {
    auto it = g_leaves.find(key);
    if (it != g_leaves.end()) return it->second;
  } else if (PyType_Check(f)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(f);
    // Without a C constructor only frames run, and those are watched.
    if (is_heap(as_type) && as_type->tp_new == PyBaseObject_Type.tp_new) return kLeafFrame;
  }
  const Ref r = ask(s, "classify", f);
  if (!r) return kLeafPure;
  const long v = PyLong_AsLong(r.get());
  if (v < 0) {
    fail(s, "classify");
    return kLeafPure;
  }
  if (cache) g_leaves[key] = static_cast<uint8_t>(v);
  return static_cast<uint8_t>(v);
}

namespace {

// type(x) and isinstance(x, ...).
bool asks_class(PyObject* f, Py_ssize_t npos) {
  if (f == reinterpret_cast<PyObject*>(&PyType_Type)) return npos == 1;
  return is_builtin(f, "isinstance");
}

// The arguments of a call as a Python function takes them; false with an exception set where they
// could not be made.
struct Arguments {
  Ref args, kwargs;
  explicit operator bool() const { return args && kwargs; }
};

Arguments make_args(PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  Arguments made{Ref::steal(PyTuple_New(npos)), Ref::steal(PyDict_New())};
  if (!made) return made;
  for (Py_ssize_t i = 0; i < npos; ++i) PyTuple_SET_ITEM(made.args.get(), i, Py_NewRef(args[i]));
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < nkw; ++i)
    if (PyDict_SetItem(made.kwargs.get(), PyTuple_GET_ITEM(kwnames, i), args[npos + i]) < 0)
      return {};
  return made;
}

bool has_tensor(PyObject* root) {
  if (is_tensor(root)) return true;
  // Containers in the order of their depth, each once: one may hold another, or itself, many times.
  std::vector<std::pair<PyObject*, int>> todo{{root, 0}};
  std::unordered_set<PyObject*> seen{root};
  bool found = false;
  auto look = [&](PyObject* x, int depth) {
    found = found || is_tensor(x);
    const bool holds = PyTuple_Check(x) || PyList_Check(x) || PyDict_Check(x);
    if (holds && depth < 4 && seen.insert(x).second) todo.emplace_back(x, depth);
  };
  for (size_t at = 0; at < todo.size() && !found; ++at) {
    auto [v, depth] = todo[at];
    if (PyTuple_Check(v) || PyList_Check(v)) {
      for (Py_ssize_t i = 0; !found && i < PySequence_Fast_GET_SIZE(v); ++i)
        look(PySequence_Fast_GET_ITEM(v, i), depth + 1);
    } else if (PyDict_Check(v)) {
      PyObject *k, *x;
      Py_ssize_t pos = 0;
      while (!found && PyDict_Next(v, &pos, &k, &x)) look(x, depth + 1);
    }
  }
  return found;
}

// Gives a call to a method of the handler, which performs it or answers with a sentinel; not
// performed when it could not be given.
Before handler_calls(Session* s, const char* method, PyObject* f, PyObject* const* args,
                     Py_ssize_t npos, PyObject* kwnames) {
  const Arguments made = make_args(args, npos, kwnames);
  if (!made) {
    fail(s, "call");
    return {};
  }
  PauseGuard pause;
  return {
      PyObject_CallMethod(s->handler.get(), method, "OOO", f, made.args.get(), made.kwargs.get()),
      true, kPassedOn};
}

// A C function is called with tensors.  Performed where the handler performed the call: it takes
// their data.
Before array_call(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                  PyObject* kwnames) {
  const Before before = handler_calls(s, "array_call", f, args, npos, kwnames);
  if (before.result != g_absent) return before;
  Py_DECREF(before.result);
  return {};
}

// setattr(object, name, value) or, with value == nullptr, delattr(object, name); or the descriptors
// object.__setattr__ and object.__delattr__, which are what stores.
static void store_attribute(Session* s, PyObject* f, PyObject* object, PyObject* name,
                            PyObject* value) {
  rely_on(s, name);  // the interpreter takes an equal string in its place
  const Ref interned = intern(name);
  attr_store(s, object, interned.get(), value, !PyCFunction_Check(f));
}

// Whether a function of this name, a method or its descriptor, is called.
bool is_named(PyObject* f, const char* name) {
  if (Py_IS_TYPE(f, &PyMethodDescr_Type))
    return std::strcmp(reinterpret_cast<PyMethodDescrObject*>(f)->d_method->ml_name, name) == 0;
  return is_builtin(f, name);
}

// Whether what this does to an outside deque is the same whatever the deque holds, and can be told
// when all is over.
bool takes_blindly(Session* s, PyObject* deque, PyObject* f, PyObject* given, Py_ssize_t npos) {
  if (is_named(f, "append") && npos == 1) {
    if (!ensure_pre(s, deque)) return false;
    ++s->containers[deque].appended;
    note_store(s, deque, nullptr, given);
    return true;
  }
  if (!is_named(f, "extend")) return false;
  PauseGuard pause;
  const Ref most = Ref::steal(PyObject_GetAttrString(deque, "maxlen"));
  if (!most) fail(s, "maxlen");
  return most.get() == Py_None;
}

// dict.setdefault(key[, default]): a read and, where nothing is there, a store.
void read_or_store(Session* s, PyObject* dict, PyObject* const* rest, Py_ssize_t nrest) {
  PyObject* now = dict_item(dict, rest[0]);
  if (now == nullptr && PyErr_Occurred()) {
    PyErr_Clear();
    return;
  }
  if (now == nullptr || !counter_read(s, dict, rest[0], now)) read_dict(s, dict, rest[0], now);
  s->replaced.reset();  // the call gives it
  if (now == nullptr) dict_store(s, dict, rest[0], nrest > 1 ? rest[1] : Py_None);
}

// dict.update(other, name=value, ...): stores, each under a key of its own.  False if that cannot
// be told.
bool store_each(Session* s, PyObject* dict, PyObject* const* given, Py_ssize_t npos,
                PyObject* kwnames) {
  if (npos > 1 || (npos == 1 && !PyDict_CheckExact(given[0]))) return false;
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (npos == 1 && PyDict_Next(given[0], &pos, &k, &v))
    if (!plain_key(k) || has_tracked(s, k)) return false;
  const bool outside = known_outside(s, dict), others = npos == 1 && given[0] != dict;
  if (others) touch_kept(s, given[0], false);
  for (pos = 0; others && PyDict_Next(given[0], &pos, &k, &v);)
    if (outside) {
      look_for_key(s, dict, k);
      dict_store(s, dict, k, v);
    }
  for (Py_ssize_t i = 0; kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i) {
    touch_kept(s, given[npos + i], false);
    if (outside) {
      look_for_key(s, dict, PyTuple_GET_ITEM(kwnames, i));
      dict_store(s, dict, PyTuple_GET_ITEM(kwnames, i), given[npos + i]);
    }
  }
  return true;
}

// A container takes over what it is given, and does that with it.
ToC store_elements(Session* s, uint8_t leaf, PyObject* f, PyObject* container,
                   PyObject* const* given, Py_ssize_t npos, PyObject* kwnames) {
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (container != nullptr && PyDict_Check(container) && leaf == kLeafBlind &&
      store_each(s, container, given, npos, kwnames))
    return kComputed;
  if (container != nullptr && PySet_Check(container) && npos == 1 && nkw == 0 &&
      is_named(f, "add") && asks_table(s, container, given[0])) {
    store_in_table(s, container, given[0], Py_True);
    return kComputed;
  }
  const bool is_list = container != nullptr && PyList_Check(container);
  const bool in_order = is_list || (container != nullptr && is_deque(container));
  if (container != nullptr && known_outside(s, container) && is_container(container)) {
    // Only a list and a deque take new elements without looking at the old ones.
    if (PyDict_Check(container) && leaf == kLeafDictSet && npos == 2 &&
        look_for_key(s, container, given[0]))
      dict_store(s, container, given[0], given[1]);
    else if (is_list && npos == 1 && is_named(f, "append") && ensure_pre(s, container))
      note_store(s, container, nullptr, given[0]);
    else if (is_list ||
             (in_order && takes_blindly(s, container, f, npos > 0 ? given[0] : nullptr, npos))) {
      ensure_pre(s, container);
      if (!is_named(f, "append")) s->containers[container].unlogged = true;
    } else
      touch(s, container, false);
  }
  // What is appended is one element; what a list is extended with may make its elements anew, as a
  // text does.
  const bool whole = is_list ? !is_named(f, "extend") : in_order && is_named(f, "append");
  for (Py_ssize_t i = 0; i < npos + nkw; ++i)
    if (whole || (is_list && passes_elements_on(s, given[i])))
      touch_kept(s, given[i], false);
    else if (container != nullptr && PyDict_Check(container) && i < npos && is_named(f, "update"))
      touch_pairs(s, given[i]);
    else
      touch(s, given[i], false);
  // A dict and a set look for each element among those that they have.
  return in_order ? kPassedOn : kComputed;
}

// A class is made of what a dict holds, and of what its `__slots__` name.
void touch_namespace(Session* s, PyObject* space) {
  touch(s, space, false);
  static PyObject* const slots = PyUnicode_InternFromString("__slots__");
  PyObject* named = PyDict_Check(space) ? item_or_null(space, slots) : nullptr;
  if (named != nullptr) touch(s, named, true);
}

// What wraps a function and takes over what that is called (`functools_wraps` and
// `property_init_impl` in CPython).
bool takes_over_names(PyObject* f) {
  if (!PyType_Check(f)) return false;
  for (PyTypeObject* t : {&PyProperty_Type, &PyStaticMethod_Type, &PyClassMethod_Type})
    if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(f), t)) return true;
  return false;
}

void names_taken_over(Session* s, PyObject* function) {
  if (!PyFunction_Check(function)) return;
  static PyObject* const names[] = {
      PyUnicode_InternFromString("__module__"), PyUnicode_InternFromString("__name__"),
      PyUnicode_InternFromString("__qualname__"), PyUnicode_InternFromString("__doc__"),
      PyUnicode_InternFromString("__annotations__")};
  for (PyObject* name : names) {
    const Ref value = Ref::steal(PyObject_GetAttr(function, name));
    if (!value) not_there(s, "names");
    attr_load(s, function, name, value.get());
    s->replaced.reset();
  }
  const Ref own = Ref::steal(PyObject_GenericGetDict(function, nullptr));
  if (!own) return fail(s, "names");
  if (known_outside(s, function)) {
    reach(s, own.get());
    touch(s, own.get(), false);
  }
}

// A function that asks for classes, or computes from plain values.
void read_arguments(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                    Py_ssize_t nkw) {
  if (npos > 0 && asks_class(f, npos)) {
    read_type(s, args[0]);
    if (npos == 2) read_classes(s, args[1], false);
  } else if (is_builtin(f, "issubclass") && npos == 2) {
    read_bases(s, args[0]);
    read_classes(s, args[1], false);
  } else if (npos > 0 && f == reinterpret_cast<PyObject*>(g_partial_type) &&
             PyObject_TypeCheck(args[0], g_partial_type)) {
    touch(s, args[0], false);  // its parts are taken over, and what its keywords are
    if (PyObject* keywords = bound_parts(args[0]).parts[2]; keywords != nullptr)
      touch(s, keywords, false);
  } else {
    if (f == reinterpret_cast<PyObject*>(&PyType_Type) && npos == 3) touch_namespace(s, args[2]);
    if (takes_over_names(f) && npos > 0) names_taken_over(s, args[0]);
    for (Py_ssize_t i = 0; i < npos + nkw; ++i) {
      if (PyUnicode_Check(args[i])) rely_on(s, args[i]);  // a program, a name
      if (PyType_Check(args[i])) read_classes(s, args[i], true);
    }
  }
}

// A list that is an input, or one of such lists, is given to a function that makes a tensor of it,
// anew in every call.
bool makes_tensor_of(Session* s, PyObject* f, PyObject* list) {
  if (s->inputs.empty() || !PyList_CheckExact(list)) return false;
  const bool input = s->inputs.has(list);
  bool holds = input;
  for (Py_ssize_t i = 0; !holds && i < PyList_GET_SIZE(list); ++i)
    holds = s->inputs.has(PyList_GET_ITEM(list, i));
  if (!holds || (!input && known_outside(s, list))) return false;
  if (ask(s, "makes_tensor", f).get() != Py_True) return false;
  for (Py_ssize_t i = 0; !input && i < PyList_GET_SIZE(list); ++i) {
    const Ref item = Ref::borrow(PyList_GET_ITEM(list, i));
    if (!s->inputs.has(item.get())) touch(s, item.get(), true);
  }
  return true;
}

// A function that looks into what it is given, and does that with it.
ToC touch_arguments(Session* s, PyObject* f, PyObject* self, PyObject* const* args, Py_ssize_t npos,
                    PyObject* kwnames, bool torchs) {
  const Py_ssize_t n = npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  const Looks looks = looks_of(f, args, npos, kwnames);
  callables_given(s, f, self, args, n);
  if (self != nullptr && looks.own == Look::kKept)
    touch_kept(s, self, false);
  else if (self != nullptr)
    touch(s, self, looks.own != Look::kItself);
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (torchs && makes_tensor_of(s, f, args[i])) continue;
    const bool holds = is_container(args[i]) || passes_elements_on(s, args[i]);
    if (is_builtin(f, "len") && (PyDict_CheckExact(args[i]) ? read_keys(s, args[i])
                                                            : read_length(s, args[i])))
      continue;
    if (looks.given == Look::kKept && passes_elements_on(s, args[i]))
      touch_kept(s, args[i], false);
    else if (looks.given == Look::kPairs && i < npos)
      touch_pairs(s, args[i]);
    else
      touch(s, args[i], looks.given == Look::kAll || looks.given == Look::kKept || !holds);
  }
  return looks.on ? kPassedOn : kComputed;
}

// A C function is about to be called, with `self` behind it or nullptr, which the handler has no
// part in.  What it does with what frames give it.
ToC before_leaf(Session* s, uint8_t leaf, PyObject* f, PyObject* self, PyObject* const* args,
                Py_ssize_t npos, PyObject* kwnames) {
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  // Normal form: first = receiver or first argument.
  PyObject* first = self ? self : (npos > 0 ? args[0] : nullptr);
  PyObject* const* rest = self ? args : args + 1;
  const Py_ssize_t nrest = self ? npos : npos - 1;
  switch (leaf) {
    case kLeafPure: read_arguments(s, f, args, npos, nkw); break;
    case kLeafTouch:
    case kLeafTorch:
      return touch_arguments(s, f, self, args, npos, kwnames, leaf == kLeafTorch);
    case kLeafSetattr:
      if (first != nullptr && nrest == 2 && PyUnicode_Check(rest[0]))
        store_attribute(s, f, first, rest[0], rest[1]);
      break;
    case kLeafDelattr:
      if (first != nullptr && nrest == 1 && PyUnicode_Check(rest[0]))
        store_attribute(s, f, first, rest[0], nullptr);
      break;
    case kLeafGetattr:
      if (first != nullptr && nrest >= 1 && PyUnicode_CheckExact(rest[0]))
        reach_descriptor(s, first, rest[0]);
      break;
    case kLeafDictGet:
      if (first == nullptr || !PyDict_Check(first) || nrest < 1) break;
      if (known_outside(s, first))
        look_for_key(s, first, rest[0]);
      else if (!known_key(s, first, rest[0]))
        touch(s, first, false);
      break;
    case kLeafDictDefault:
      if (first != nullptr && PyDict_Check(first) && nkw == 0 && (nrest == 1 || nrest == 2) &&
          known_key(s, first, rest[0])) {
        if (known_outside(s, first) && look_for_key(s, first, rest[0]))
          read_or_store(s, first, rest, nrest);
        rely_on(s, rest[0]);
        break;
      }
      return touch_arguments(s, f, self, args, npos, kwnames, false);
    case kLeafDictSet:
    case kLeafBlind: return store_elements(s, leaf, f, first, rest, nrest, kwnames);
    default: break;
  }
  return kPassedOn;
}

// A call of which the handler wants to know what it has done, and below which nothing is watched.
PyObject* call_for_effect(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                          PyObject* kwnames) {
  PauseGuard pause;
  PyObject* r;
  {
    SignalsLetIn now;
    tls_below = true;
    r = PyObject_Vectorcall(f, args, npos, kwnames);
    tls_below = false;
  }
  ErrorGuard error;
  SignalHold signals;
  Ref done = ask(s, "effect_done", r ? r : g_absent);
  if (r != nullptr && done && done.get() != g_absent) Py_SETREF(r, done.release());
  return r;
}

// A method made of something else than a Python function calls that with its receiver in front.
std::vector<PyObject*> with_receiver(PyObject* method, PyObject* const* args, Py_ssize_t npos,
                                     PyObject* kwnames) {
  std::vector<PyObject*> all{PyMethod_GET_SELF(method)};
  all.insert(all.end(), args, args + npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  return all;
}

void refuse(Session* s, const char* reason, const char* remedy) {
  const Ref said = Ref::steal(PyUnicode_FromString(reason));
  const Ref help = Ref::steal(PyUnicode_FromString(remedy));
  if (!said || !help) return fail(s, "refusal");
  ask(s, "refuse", said.get(), help.get());
}

}  // namespace

Before on_call_pre(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  Session* s = tls_session;
  count_event(s);
  if (PyFunction_Check(f) && g_leaf_code.empty()) return {};
  if (Py_TYPE(f)->tp_call == nullptr) {
    // The interpreter says that it cannot be called, as its class stands.
    ErrorGuard error;
    read_type(s, f);
    if (is_heap(Py_TYPE(f))) read_type_attr(s, Py_TYPE(f), g_str_call, nullptr);
    return {};
  }
  {
    ErrorGuard error;
    if (makes_class(f, args, npos)) {
      // Each call would have a class of its own, whose attributes no guard reads.
      refuse(s, "a class is made", "Define the class outside of the compiled function");
    } else if (runs_in_made_dict(s, f, args, npos, kwnames)) {
      refuse(s, "code runs in a dict that the call makes, or a function is made for one",
             "Do this outside of the compiled function");
    }
    descriptor_called(s, f, args, npos);
  }
  if (PyMethod_Check(f) && !PyFunction_Check(PyMethod_GET_FUNCTION(f))) {
    const std::vector<PyObject*> all = with_receiver(f, args, npos, kwnames);
    return on_call_pre(PyMethod_GET_FUNCTION(f), all.data(), npos + 1, kwnames);
  }
  if (Py_IS_TYPE(f, &ModuleCall_Type) && npos > 0 && compiled_behind(args[0]) != nullptr)
    return on_call_pre(compiled_behind(args[0]), args + 1, npos - 1, kwnames);
  uint8_t leaf;
  PyObject* self = nullptr;
  bool use_handler = false, joins = false;
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool takes_tensors = false;
  PyObject* behind = nullptr;
  {
    ErrorGuard error;
    if (PyType_Check(f)) {  // it makes an object
      read_classes(s, f, true);
      read_abstract(s, reinterpret_cast<PyTypeObject*>(f));
    }
    for (Py_ssize_t i = 0; i < npos + nkw; ++i)
      if (is_tensor(args[i])) read_protocols(s, Py_TYPE(args[i]));
    leaf = classify(s, f);
    self = bound_self(f);
    PyTypeObject* t = Py_TYPE(f);
    if (!PyFunction_Check(f) && !PyMethod_Check(f) && is_heap(t)) {
      read_type(s, f);
      read_type_attr(s, t, g_str_call, _PyType_Lookup(t, g_str_call));
    }
    // A function that looks at no element is not slower for what has many.
    const bool shallow =
        leaf == kLeafTouch && looks_of(f, args, npos, kwnames).given == Look::kKept;
    for (Py_ssize_t i = 0;
         leaf == kLeafTouch && self == nullptr && i < npos + nkw && !takes_tensors; ++i)
      takes_tensors = shallow ? is_tensor(args[i]) : has_tensor(args[i]);
  }
  if (takes_tensors)
    if (const Before before = array_call(s, f, args, npos, kwnames); before.performed)
      return before;
  {
    ErrorGuard error;
    if (!s->tracked.empty() && leaf != kLeafFrame && leaf != kLeafPure && leaf != kLeafHandler) {
      bool any =
          self != nullptr && (PyTuple_Check(self) ? has_tracked(s, self) : tracked(s, self));
      // What there is in it follows from the keys that the run has put there.
      if (npos > 0 && leaf == kLeafDictGet)
        any = any || is_table(s, self != nullptr ? self : args[0]);
      else if (npos == 1 && is_builtin(f, "len"))
        any = any || asks_length(s, args[0]);
      const bool keeps =
          leaf == kLeafTouch && looks_of(f, args, npos, kwnames).given == Look::kKept;
      for (Py_ssize_t i = 0; i < npos + nkw && !any; ++i)
        any = keeps && passes_elements_on(s, args[i]) ? false : has_tracked(s, args[i]);
      // What stores its arguments without looking at them keeps their identity, which is how they
      // are known.
      if (any && leaf != kLeafBlind && leaf != kLeafDictSet && leaf != kLeafSetattr)
        use_handler = true;
    }
    if (npos == 1 && nkw == 0 && s->inputs.has(args[0]) && PyCFunction_Check(f)) {
      Ref number = ask(s, "of_list", f, args[0]);
      if (number && number.get() != Py_None) return {number.release(), true, kPassedOn};
    }
    // What a generator gives is joined one after another: its numbers may follow from data.
    joins = PyCFunction_Check(f) && nkw == 0 && npos > 0 && PyGen_CheckExact(args[0]) &&
            (npos == 1 ? is_builtin(f, "sum") || is_builtin(f, "min") || is_builtin(f, "max")
                       : is_builtin(f, "sum") && npos == 2 &&
                             (PyLong_CheckExact(args[1]) || PyFloat_CheckExact(args[1])));
    if (!use_handler && !joins && leaf != kLeafFrame && leaf != kLeafHandler) {
      return {nullptr, false, before_leaf(s, leaf, f, self, args, npos, kwnames)};
    }
    if (!use_handler && leaf == kLeafFrame) {
      // The dispatcher calls it directly.
      behind = compiled_behind(f);
    }
  }
  if (leaf == kLeafFrame && !use_handler)
    return behind != nullptr ? on_call_pre(behind, args, npos, kwnames) : Before{};
  // The handler performs the call itself, or leaves it to us by answering with the sentinel; with
  // NotImplemented it leaves a call for its effect to us, below which nothing is watched, and which
  // finds the program's own frame.
  const Before before =
      handler_calls(s, joins ? "joined_call" : use_handler ? "tracked_call" : "call", f, args,
                    npos, kwnames);
  if (before.result == g_absent) {
    Py_DECREF(before.result);
    return {nullptr, false,
            use_handler && !looks_of(f, args, npos, kwnames).on ? kComputed : kPassedOn};
  }
  if (before.result != Py_NotImplemented) return before;
  Py_DECREF(before.result);
  return {call_for_effect(s, f, args, npos, kwnames), true, kPassedOn};
}

void on_frame_below(PyObject* func) {
  ErrorGuard error;
  PauseGuard pause;
  SignalHold signals;
  tls_below = false;
  ask(tls_session, "below", func);
  tls_below = true;
}

bool on_handler(PyObject* func, PyObject* number) {
  Session* s = tls_session;
  ErrorGuard error;
  return ask(s, "signalled", func, number).get() == Py_True;
}

void on_warning() {
  ErrorGuard error;
  ask(tls_session, "warns", active() ? Py_True : Py_False);
}

// Whether Python of the program's runs when an object dies, or what a weak reference leads to.
static bool dies_loudly(PyObject* v) {
  static PyObject* const str_del = PyUnicode_InternFromString("__del__");
  if (PyWeakref_Check(v)) return reinterpret_cast<PyWeakReference*>(v)->wr_callback != nullptr;
  PyTypeObject* t = Py_TYPE(v);
  return is_heap(t) && t->tp_finalize != nullptr && str_del != nullptr &&
         _PyType_Lookup(t, str_del) != nullptr;
}

PyObject* on_call(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames,
                  PyObject* result) {
  Session* s = tls_session;
  if (result != nullptr) {
    ErrorGuard error;
    shown(s, result);
    for (Py_ssize_t i = 0; PyTuple_CheckExact(result) && i < PyTuple_GET_SIZE(result) && i < 4; ++i)
      shown(s, PyTuple_GET_ITEM(result, i));
  }
  if (PyMethod_Check(f) && !PyFunction_Check(PyMethod_GET_FUNCTION(f))) {
    const std::vector<PyObject*> all = with_receiver(f, args, npos, kwnames);
    return on_call(PyMethod_GET_FUNCTION(f), all.data(), npos + 1, kwnames, result);
  }
  if (PyFunction_Check(f) || PyMethod_Check(f)) return result;
  if (Py_IS_TYPE(f, &Compiled_Type))
    return on_call(compiled_behind(f), args, npos, kwnames, result);
  ErrorGuard error;
  AfterGuard after(s);
  uint8_t leaf = classify(s, f);
  if (result != nullptr && PyFrame_Check(result)) read_frame(s, result);
  if (result != nullptr && dies_loudly(result) && !known_outside(s, result))
    ask(s, "finalizable", result);
  if (result != nullptr && PyModule_Check(result) && PyType_Check(f)) ask(s, "module_made", result);
  if (result != nullptr) descriptor_gave(s, f, args, npos, result);
  if (result != nullptr && PyFunction_Check(result) &&
      f == reinterpret_cast<PyObject*>(&PyFunction_Type))
    on_make_function(result);
  if (result != nullptr && !watch_if_iterator(result))
    on_uninstrumented(nullptr, "there are too many kinds of iterators");
  if (PyType_Check(f) && reinterpret_cast<PyTypeObject*>(f)->tp_iternext != nullptr) {
    // It calls what it is given later, where nobody is told that the call raised.
    for (Py_ssize_t i = 0; i < npos; ++i)
      if (PyFunction_Check(args[i])) read_function(s, reinterpret_cast<PyFunctionObject*>(args[i]));
  }
  if (leaf == kLeafFrame || leaf == kLeafPure) return result;
  if (leaf == kLeafGetattr || leaf == kLeafDictGet) {
    PyObject* self = bound_self(f);
    PyObject* first = self ? self : (npos > 0 ? args[0] : nullptr);
    PyObject* const* rest = self ? args : args + 1;
    Py_ssize_t nrest = self ? npos : npos - 1;
    if (first == nullptr || nrest < 1) return result;
    if (leaf == kLeafGetattr) {
      if (!PyUnicode_Check(rest[0])) return result;
      const Ref interned = intern(rest[0]);
      PyObject* name = interned.get();
      // What is told is the attribute itself: hasattr answers a bool, getattr may answer the
      // default.
      PauseGuard pause;
      PyTypeObject* t = Py_TYPE(first);
      bool generic =
          t->tp_getattro == PyObject_GenericGetAttr ||
          (PyType_Check(first) && t->tp_getattro == PyType_Type.tp_getattro && !is_heap(t)) ||
          (PyModule_Check(first) && t->tp_getattro == PyModule_Type.tp_getattro &&
           PyDict_GetItemWithError(PyModule_GetDict(first), g_str_getattr) == nullptr);
      PyObject* descr = _PyType_Lookup(t, name);
      bool runs_code = descr != nullptr && Py_TYPE(descr)->tp_descr_get != nullptr &&
                       (Py_TYPE(descr) == &PyProperty_Type || is_heap(Py_TYPE(descr)));
      const bool again = generic && !runs_code && !is_tensor(first);
      const Ref v = again ? Ref::steal(PyObject_GetAttr(first, name)) : Ref::borrow(result);
      if (!v) not_there(s, "getattr");
      attr_load(s, first, name, v.get());
      if (s->replaced && v.get() != result) {
        // Something else was given than what is there.
        rely_on(s, s->replaced.get());
        s->replaced.reset();
      }
      return take_replaced(s, result);
    } else if (asks_table(s, first, rest[0])) {
      return result;  // the handler has asked it
    } else if (PyDict_Check(first) && known_outside(s, first) && can_search(s, first, rest[0])) {
      PyObject* found = dict_item(first, rest[0]);
      if (found != nullptr && found == result && counter_read(s, first, rest[0], found))
        return take_replaced(s, result);
      read_dict(s, first, rest[0], found);
    }
    return result;
  }
  if (leaf == kLeafHandler || leaf == kLeafDictDefault) return result;
  if (result != Py_None && has_tensor(result) &&
      !(PyType_Check(f) && leaf == kLeafTouch && !is_tensor(result))) {
    const Arguments made = make_args(args, npos, kwnames);
    if (made)
      ask(s, "c_result", f, made.args.get(), made.kwargs.get(), result);
    else
      fail(s, "c_result");
  }
  return result;
}

// A TypeError of a call: where a Python function did not take its arguments it has no frame that
// tells of it.
static void may_not_be_entered(Session* s, PyObject* f, int depth = 0) {
  if (depth > 8) return;
  if (PyFunction_Check(f)) return read_function(s, reinterpret_cast<PyFunctionObject*>(f));
  if (PyMethod_Check(f)) return may_not_be_entered(s, PyMethod_GET_FUNCTION(f), depth + 1);
  if (const Ref inner = inner_function(f)) return may_not_be_entered(s, inner.get(), depth + 1);
  if (g_partial_type != nullptr && PyObject_TypeCheck(f, g_partial_type)) {
    if (PyObject* inner = bound_parts(f).parts[0]) may_not_be_entered(s, inner, depth + 1);
    return;
  }
  static PyObject* const names[] = {PyUnicode_InternFromString("__call__"),
                                    PyUnicode_InternFromString("__new__"),
                                    PyUnicode_InternFromString("__init__")};
  auto* t = Py_TYPE(f);
  PyObject* called = is_heap(t) ? _PyType_Lookup(t, names[0]) : nullptr;
  if (called != nullptr && called != f) may_not_be_entered(s, called, depth + 1);
  if (!PyType_Check(f) || !is_heap(reinterpret_cast<PyTypeObject*>(f))) return;
  for (PyObject* name : {names[1], names[2]}) {
    PyObject* made_by = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(f), name);
    if (made_by != nullptr) may_not_be_entered(s, made_by, depth + 1);
  }
}

void on_call_raised(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  Session* s = tls_session;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    ErrorGuard error;
    may_not_be_entered(s, f);
    if (!PyFunction_Check(f)) {
      const Py_ssize_t n = npos + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
      for (Py_ssize_t i = 0; i < n; ++i)  // C code may have called what it was given
        if (args[i] != nullptr && Py_TYPE(args[i])->tp_call != nullptr)
          may_not_be_entered(s, args[i]);
    }
  }
  if (PyMethod_Check(f) && !PyFunction_Check(PyMethod_GET_FUNCTION(f))) {
    const std::vector<PyObject*> all = with_receiver(f, args, npos, kwnames);
    return on_call_raised(PyMethod_GET_FUNCTION(f), all.data(), npos + 1, kwnames);
  }
  if (PyFunction_Check(f) || PyMethod_Check(f)) return;
  const bool warning = PyErr_ExceptionMatches(PyExc_Warning) != 0;
  ErrorGuard error;
  AfterGuard after(s);
  if (warning) ask(s, "warning_raised", f);
  if (classify(s, f) == kLeafGetattr && npos >= 2 && PyUnicode_Check(args[1])) {
    const Ref name = intern(args[1]);
    attr_load(s, args[0], name.get(), nullptr);
  }
}

}  // namespace magpy
