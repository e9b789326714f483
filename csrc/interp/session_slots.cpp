// Callables that C code calls by itself: special methods, what stands behind properties, factories,
// what a C function is given.
//
// Owns: what of such a callable is looked at.  Does not own: the lookup itself
// (session_attributes.cpp), nor the C functions that report what they call (iterators.cpp).  Called
// by the session, with the GIL held.
//
// Where it is a Python function its frame reports what it does.  Anything else (a partial, a cache,
// a bound method, an `attrgetter`) has a state of its own, or reads what it is given, and no probe
// is told of the call: it is looked into here where its state is known, performed as a call of the
// program's where a property is loaded, or else refused.

#include "classes.h"
#include "dispatch.h"
#include "iterators.h"
#include "leaf.h"
#include "looks.h"
#include "session_impl.h"

namespace magpy {

// Whether a class statement made the class that has this attribute; false where there is none. What
// stands in classes written in C, pybind11's among them, is theirs.
static bool of_python_class(PyTypeObject* t, PyObject* name) {
  for (Py_ssize_t i = 0; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (base->tp_dict == nullptr || PyDict_GetItemWithError(base->tp_dict, name) == nullptr)
      continue;
    return is_heap(base) && c_base(base) != base;
  }
  return false;
}

Ref inner_function(PyObject* f) {
  static PyObject* const name = PyUnicode_InternFromString("__func__");
  if (name == nullptr ||
      !(Py_IS_TYPE(f, &PyStaticMethod_Type) || Py_IS_TYPE(f, &PyClassMethod_Type)))
    return Ref();
  Ref inner = Ref::steal(PyObject_GetAttr(f, name));
  if (!inner) PyErr_Clear();
  return inner;
}

// What is called has a state: it is outside, and was so before the call.
static bool has_state(Session* s, PyObject* f) {
  if (s->after && !known_outside(s, f)) return false;
  reach(s, f);
  return true;
}

// Whether a call of it is seen, or depends on nothing but what it is given by code that knows the
// class.
static bool seen_when_called(Session* s, PyObject* f, int depth = 0) {
  PyTypeObject* t = Py_TYPE(f);
  if (t->tp_call == nullptr || PyFunction_Check(f) || PyType_Check(f) || depth > 8)
    return depth <= 8;
  // Slots and methods of classes written in C, and what magpy itself sets in a class.
  for (PyTypeObject* c : {&PyWrapperDescr_Type, &PyMethodDescr_Type, &PyClassMethodDescr_Type,
                          &PyInstanceMethod_Type, &ModuleCall_Type})
    if (t == c) return true;
  // `__new__`, and static functions.
  if (PyCFunction_Check(f) &&
      (PyCFunction_GET_SELF(f) == nullptr || PyType_Check(PyCFunction_GET_SELF(f))))
    return true;
  if (Py_IS_TYPE(f, &Compiled_Type)) return seen_when_called(s, compiled_behind(f), depth + 1);
  if (const Ref inner = inner_function(f)) return seen_when_called(s, inner.get(), depth + 1);
  if (PyMethod_Check(f))
    return has_state(s, f) && seen_when_called(s, PyMethod_GET_FUNCTION(f), depth + 1);
  if (g_partial_type != nullptr && PyObject_TypeCheck(f, g_partial_type)) {
    if (!has_state(s, f)) return false;
    touch(s, f, true);
    return seen_when_called(s, bound_parts(f).parts[0], depth + 1);
  }
  if (!is_heap(t) || c_base(t) == t) return false;
  // An object of a class of the program's: its own `__call__` is one of these.
  if (!has_state(s, f)) return false;
  read_type(s, f);
  read_protocols(s, t);
  return true;
}

// Refuses the capture for a reason, none after an error.
static void refuse(Session* s, const Ref& reason) {
  if (!reason) return fail(s, "slots");
  ask(s, "refuse", reason.get());
}

static void refuse_unseen(Session* s, PyTypeObject* t, PyObject* name, PyObject* f) {
  refuse(s, format_text("%s.%U is a %s, and nobody sees what it reads when it is called there",
                        t->tp_name, name, Py_TYPE(f)->tp_name));
}

// What gives the special method when it is asked for (a property, a partialmethod), which is then
// called unseen.
static bool gives_another(PyObject* found) {
  PyTypeObject* t = Py_TYPE(found);
  if (t->tp_descr_get == nullptr || t->tp_call != nullptr) return false;
  return !Py_IS_TYPE(found, &PyStaticMethod_Type) && !Py_IS_TYPE(found, &PyClassMethod_Type);
}

// Whether a method of a class written in C stands for a special method that is another one
// (`__call__ = dict.copy`): who uses that does not know that it looks at what the object holds, or
// changes it.
static bool is_another(PyObject* found, PyObject* name) {
  if (!Py_IS_TYPE(found, &PyWrapperDescr_Type) && !Py_IS_TYPE(found, &PyMethodDescr_Type))
    return false;
  PyTypeObject* t = PyDescr_TYPE(found);
  for (PyTypeObject* plain : {&PyBaseObject_Type, &PyLong_Type, &PyFloat_Type, &PyComplex_Type,
                              &PyUnicode_Type, &PyBytes_Type, &PyBool_Type})
    if (t == plain) return false;
  if (g_tensor_type != nullptr && PyType_IsSubtype(g_tensor_type, t))
    return false;  // operations, of which the recorder hears
  const char* own = PyUnicode_AsUTF8(PyDescr_NAME(found));
  const char* text = PyUnicode_AsUTF8(name);
  if (own == nullptr || text == nullptr || strcmp(own, text) == 0) return PyErr_Clear(), false;
  if (strcmp(text, "__str__") == 0 || strcmp(text, "__repr__") == 0)
    return strcmp(own, "__str__") != 0 && strcmp(own, "__repr__") != 0;
  if (strcmp(text, "__copy__") == 0) return strcmp(own, "copy") != 0;
  for (PyObject* hook :
       {g_str_getattr, g_str_getattribute, g_str_setattr, g_str_delattr})  // see `hook_of_c`
    if (PyUnicode_Compare(name, hook) == 0) return false;
  return strncmp(text, "__r", 3) != 0 || strncmp(own, "__", 2) != 0 ||
         strcmp(text + 3, own + 2) != 0;  // `__radd__ = __add__`
}

void slot_found(Session* s, PyTypeObject* t, PyObject* name, PyObject* found) {
  if (found == nullptr || PyFunction_Check(found)) return;
  const bool another = gives_another(found) && is_protocol(name);
  if (Py_TYPE(found)->tp_call == nullptr && !another) return;
  const char* text = PyUnicode_AsUTF8(name);
  // Torch's protocols are the recorder's.
  if (text == nullptr || strncmp(text, "__", 2) != 0 || strncmp(text, "__torch_", 8) == 0)
    return PyErr_Clear();
  if (of_python_class(t, name) &&
      (another || is_another(found, name) || !seen_when_called(s, found)))
    refuse_unseen(s, t, name, found);
}

PyObject* hook_of_c(PyTypeObject* t, PyObject* name) {
  if (!is_heap(t)) return nullptr;
  PyObject* found = _PyType_Lookup(t, name);
  if (found == nullptr || found == _PyType_Lookup(&PyBaseObject_Type, name) ||
      !of_python_class(t, name))
    return nullptr;
  return Py_IS_TYPE(found, &PyWrapperDescr_Type) || Py_IS_TYPE(found, &PyMethodDescr_Type)
             ? found
             : nullptr;
}

// What a function of C that stands for attributes is: it looks up, or puts in, an item of a dict.
static bool is_of_items(PyObject* hook, PyObject* obj, const char* const* names) {
  PyObject* name = PyDescr_NAME(hook);
  if (!PyDict_Check(obj) || factory_of(obj) != nullptr ||
      !PyType_IsSubtype(PyDescr_TYPE(hook), &PyDict_Type))
    return false;
  for (; *names != nullptr; ++names)
    if (PyUnicode_CompareWithASCIIString(name, *names) == 0) return true;
  return false;
}

void attribute_read_by_c(Session* s, PyObject* hook, PyObject* obj, PyObject* name,
                         PyObject* value) {
  static const char* const reads[] = {"get", "__getitem__", nullptr};
  if (!known_outside(s, obj)) return;
  if (!is_of_items(hook, obj, reads) || !can_search(s, obj, name)) {
    refuse_unseen(s, Py_TYPE(obj), g_str_getattr, hook);
    return;
  }
  PyObject* item = PyDict_GetItemWithError(obj, name);
  if (item == nullptr || item != value || !counter_read(s, obj, name, item))
    read_dict(s, obj, name, item);
}

void attribute_written_by_c(Session* s, PyObject* hook, PyObject* obj, PyObject* name,
                            PyObject* value) {
  static const char* const writes[] = {"__setitem__", "__delitem__", nullptr};
  if (!known_outside(s, obj)) return;
  if (!is_of_items(hook, obj, writes)) {
    refuse_unseen(s, Py_TYPE(obj), value != nullptr ? g_str_setattr : g_str_delattr, hook);
    return;
  }
  look_for_key(s, obj, name);
  dict_store(s, obj, name, value);
}

void module_hook_used(Session* s, PyObject* module, PyObject* hook) {
  if (hook != nullptr && !PyFunction_Check(hook) && !seen_when_called(s, hook))
    refuse_unseen(s, Py_TYPE(module), g_str_getattr, hook);
}

struct DefaultDictObject {  // collections.defaultdict (Modules/_collectionsmodule.c), the same
                            // on 3.11 to 3.13
  PyDictObject dict;
  PyObject* factory;
};

PyObject* factory_of(PyObject* dict) {
  if (g_defaultdict_type == nullptr || !PyObject_TypeCheck(dict, g_defaultdict_type))
    return nullptr;
  PyObject* factory = reinterpret_cast<DefaultDictObject*>(dict)->factory;
  return factory == Py_None ? nullptr : factory;
}

void factory_used(Session* s, PyObject* factory) {
  // What a container's method looks at and changes is the container, and what the call made is its
  // own.
  PyObject* self = bound_self(factory);
  if (self != nullptr && (is_container(self) || (!PyModule_Check(self) && !known_outside(s, self))))
    return;
  if (seen_when_called(s, factory)) return;
  refuse(s, format_text("a defaultdict's default_factory is a %s, and nobody sees what it reads "
                        "when the dict calls it",
                        Py_TYPE(factory)->tp_name));
}

// C functions whose calls of what they are given are known: they report them, are iterators, or
// make none.
static bool reports_calls(PyObject* f, PyObject* self) {
  if (calls_its_argument(f) || (self != nullptr && (is_container(self) || is_leaf(self))))
    return true;
  if (PyType_Check(f)) {
    const char* name = reinterpret_cast<PyTypeObject*>(f)->tp_name;
    return strchr(name, '.') == nullptr || strncmp(name, "itertools.", 10) == 0 ||
           strncmp(name, "collections.", 12) == 0 ||
           strcmp(name, "functools._lru_cache_wrapper") == 0;
  }
  PyObject* module =
      PyCFunction_Check(f) ? reinterpret_cast<PyCFunctionObject*>(f)->m_module : nullptr;
  if (module == nullptr || !PyUnicode_Check(module)) return false;
  if (PyUnicode_CompareWithASCIIString(module, "builtins") == 0) return true;
  return PyUnicode_CompareWithASCIIString(module, "_operator") == 0 && !is_builtin(f, "call");
}

// Whether a callable does more, when C code calls it, than to look at what it is given and at what
// it is bound to.
static bool acts_unseen(Session* s, PyObject* f, int depth = 0) {
  PyTypeObject* t = Py_TYPE(f);
  if (t->tp_call == nullptr || PyFunction_Check(f) || PyType_Check(f) || depth > 8) return false;
  if (PyMethod_Check(f)) return acts_unseen(s, PyMethod_GET_FUNCTION(f), depth + 1);
  if ((g_partial_type != nullptr && PyObject_TypeCheck(f, g_partial_type)) ||
      Py_IS_TYPE(f, &Compiled_Type))
    return acts_unseen(s, bound_parts(f).parts[0], depth + 1);
  if (is_heap(t) && c_base(t) != t) return false;
  PyObject* self = bound_self(f);
  if (self != nullptr && is_container(self)) return false;
  const uint8_t leaf = classify(s, f);
  return leaf != kLeafFrame && leaf != kLeafTouch && leaf != kLeafPure && leaf != kLeafDictGet;
}

static void refuse_given(Session* s, PyObject* f, PyObject* given) {
  const char* name = PyType_Check(f)        ? reinterpret_cast<PyTypeObject*>(f)->tp_name
                     : PyCFunction_Check(f) ? reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name
                                            : Py_TYPE(f)->tp_name;
  refuse(s, format_text("%s is given a %s, and nobody sees what that does when it is called there. "
                        "Use a lambda instead",
                        name, Py_TYPE(given)->tp_name));
}

// What an object of a class of the program's holds, as a C function finds it that is given the
// object.
static bool held_callables(Session* s, PyObject* f, PyObject* object) {
  const Ref dict = dict_as_it_is(object);
  const Ref held = Ref::steal(dict ? PyDict_Values(dict.get()) : nullptr);
  if (!held) not_there(s, "callables");
  bool good = true;
  for (Py_ssize_t i = 0; held && good && i < PyList_GET_SIZE(held.get()); ++i) {
    PyObject* value = PyList_GET_ITEM(held.get(), i);
    if (is_leaf(value) || PyFunction_Check(value) || PyType_Check(value) ||
        Py_TYPE(value)->tp_call == nullptr)
      continue;
    good = !acts_unseen(s, value);
    if (!good)
      refuse_given(s, f, value);
    else if (bound_parts(value).parts[0] != nullptr)
      touch(s, value, true);
  }
  return good;
}

void callables_given(Session* s, PyObject* f, PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (reports_calls(f, self)) return;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* v = args[i];
    if (is_leaf(v) || is_tensor(v) || PyModule_Check(v) || PyType_Check(v) || PyFunction_Check(v))
      continue;
    if (acts_unseen(s, v)) return refuse_given(s, f, v);
    if (is_heap(Py_TYPE(v)) && c_base(Py_TYPE(v)) == &PyBaseObject_Type && !held_callables(s, f, v))
      return;
  }
}

// A function of a property that is no Python function, or none.
static Ref behind_property(PyTypeObject* t, PyObject* name, PyObject* property, const char* which) {
  if (property == nullptr || !PyObject_TypeCheck(property, &PyProperty_Type) ||
      !of_python_class(t, name))
    return Ref();
  Ref f = Ref::steal(PyObject_GetAttrString(property, which));
  if (!f) PyErr_Clear();
  if (f && (f.get() == Py_None || PyFunction_Check(f.get()))) f.reset();
  return f;
}

bool is_c_property(PyTypeObject* t, PyObject* name, PyObject* property) {
  return Py_IS_TYPE(property, &PyProperty_Type) && !of_python_class(t, name);
}

void property_used(Session* s, PyTypeObject* t, PyObject* name, PyObject* property,
                   const char* which) {
  const Ref f = behind_property(t, name, property, which);
  // A getter that a probe has called is known.
  if (f && s->getter != f.get() && !seen_when_called(s, f.get()))
    refuse_unseen(s, t, name, f.get());
}

Ref getter_to_call(Session* s, PyObject* obj, PyObject* name) {
  PyTypeObject* t = Py_TYPE(obj);
  if (!is_heap(t) || PyModule_Check(obj)) return Ref();
  PyObject* property = _PyType_Lookup(t, name);
  if (property == nullptr || !Py_IS_TYPE(property, &PyProperty_Type)) return Ref();
  PyTypeObject* plain = PyType_Check(obj) ? &PyType_Type : &PyBaseObject_Type;
  if (_PyType_Lookup(t, g_str_getattribute) != _PyType_Lookup(plain, g_str_getattribute))
    return Ref();
  Ref f = behind_property(t, name, property, "fget");
  if (!f) return f;
  static PyObject* const fget = PyUnicode_InternFromString("fget");
  read_type_attr(s, t, name, property);
  reach(s, property);
  attr_load(s, property, fget, f.get());
  return f;
}

}  // namespace magpy
