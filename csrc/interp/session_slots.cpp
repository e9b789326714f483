// Callables that the interpreter finds in classes and calls itself: special methods, and what stands behind properties.
//
// Owns: what of such a callable is looked at.  Does not own: the lookup itself (session_attributes.cpp).  Called by the session,
// with the GIL held.
//
// Where it is a Python function its frame reports what it does.  Anything else (a partial, a cache, a bound method, an
// `attrgetter`) has a state of its own, or reads what it is given, and no probe is told of the call: it is looked into here where
// its state is known, performed as a call of the program's where a property is loaded, or else refused.

#include "classes.h"
#include "dispatch.h"
#include "session_impl.h"

namespace magpy {

// Whether a class statement made the class that has this attribute; false where there is none.  What stands in classes written in C,
// pybind11's among them, is theirs.
static bool of_python_class(PyTypeObject* t, PyObject* name) {
  for (Py_ssize_t i = 0; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (base->tp_dict == nullptr || PyDict_GetItemWithError(base->tp_dict, name) == nullptr) continue;
    return is_heap(base) && c_base(base) != base;
  }
  return false;
}

// What a staticmethod or a classmethod holds, or nullptr; new.
static PyObject* inner_function(PyObject* f) {
  static PyObject* const name = PyUnicode_InternFromString("__func__");
  if (name == nullptr || !(Py_IS_TYPE(f, &PyStaticMethod_Type) || Py_IS_TYPE(f, &PyClassMethod_Type))) return nullptr;
  PyObject* inner = PyObject_GetAttr(f, name);
  if (inner == nullptr) PyErr_Clear();
  return inner;
}

// What is called has a state: it is outside, and was so before the call.
static bool has_state(Session* s, PyObject* f) {
  if (s->after && !known_outside(s, f)) return false;
  reach(s, f);
  return true;
}

// Whether a call of it is seen, or depends on nothing but what it is given by code that knows the class.
static bool seen_when_called(Session* s, PyObject* f, int depth = 0) {
  PyTypeObject* t = Py_TYPE(f);
  if (t->tp_call == nullptr || PyFunction_Check(f) || PyType_Check(f) || depth > 8) return depth <= 8;
  // Slots and methods of classes written in C, and what magpy itself sets in a class.
  for (PyTypeObject* c : {&PyWrapperDescr_Type, &PyMethodDescr_Type, &PyClassMethodDescr_Type, &PyInstanceMethod_Type, &ModuleCall_Type})
    if (t == c) return true;
  // `__new__`, and static functions.
  if (PyCFunction_Check(f) && (PyCFunction_GET_SELF(f) == nullptr || PyType_Check(PyCFunction_GET_SELF(f)))) return true;
  if (Py_IS_TYPE(f, &Compiled_Type)) return seen_when_called(s, compiled_behind(f), depth + 1);
  if (PyObject* inner = inner_function(f)) {
    const bool seen = seen_when_called(s, inner, depth + 1);
    Py_DECREF(inner);
    return seen;
  }
  if (PyMethod_Check(f)) return has_state(s, f) && seen_when_called(s, PyMethod_GET_FUNCTION(f), depth + 1);
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

static void refuse_unseen(Session* s, PyTypeObject* t, PyObject* name, PyObject* f) {
  PyObject* text = PyUnicode_FromFormat("%s.%U is a %s, and nobody sees what it reads when it is called there", t->tp_name, name,
                                        Py_TYPE(f)->tp_name);
  PyObject* r = text ? ask(s, "refuse", text) : nullptr;
  if (text == nullptr) fail(s, "slots");
  Py_XDECREF(text);
  Py_XDECREF(r);
}

// What gives the special method when it is asked for (a property, a partialmethod), which is then called unseen.
static bool gives_another(PyObject* found) {
  PyTypeObject* t = Py_TYPE(found);
  if (t->tp_descr_get == nullptr || t->tp_call != nullptr) return false;
  return !Py_IS_TYPE(found, &PyStaticMethod_Type) && !Py_IS_TYPE(found, &PyClassMethod_Type);
}

void slot_found(Session* s, PyTypeObject* t, PyObject* name, PyObject* found) {
  if (found == nullptr || PyFunction_Check(found)) return;
  const bool another = gives_another(found) && is_protocol(name);
  if (Py_TYPE(found)->tp_call == nullptr && !another) return;
  const char* text = PyUnicode_AsUTF8(name);
  // Torch's protocols are the recorder's.
  if (text == nullptr || strncmp(text, "__", 2) != 0 || strncmp(text, "__torch_", 8) == 0) return PyErr_Clear();
  if (of_python_class(t, name) && (another || !seen_when_called(s, found))) refuse_unseen(s, t, name, found);
}

// A function of a property that is no Python function, or nullptr; new.
static PyObject* behind_property(PyTypeObject* t, PyObject* name, PyObject* property, const char* which) {
  if (property == nullptr || !PyObject_TypeCheck(property, &PyProperty_Type) || !of_python_class(t, name)) return nullptr;
  PyObject* f = PyObject_GetAttrString(property, which);
  if (f == nullptr) PyErr_Clear();
  if (f != nullptr && (f == Py_None || PyFunction_Check(f))) Py_CLEAR(f);
  return f;
}

bool is_c_property(PyTypeObject* t, PyObject* name, PyObject* property) {
  return Py_IS_TYPE(property, &PyProperty_Type) && !of_python_class(t, name);
}

void property_used(Session* s, PyTypeObject* t, PyObject* name, PyObject* property, const char* which) {
  PyObject* f = behind_property(t, name, property, which);
  if (f == nullptr) return;
  // A getter that a probe has called is known.
  if (s->getter != f && !seen_when_called(s, f)) refuse_unseen(s, t, name, f);
  Py_DECREF(f);
}

PyObject* getter_to_call(Session* s, PyObject* obj, PyObject* name) {
  PyTypeObject* t = Py_TYPE(obj);
  if (!is_heap(t) || PyModule_Check(obj) || made_class(s, t)) return nullptr;
  PyObject* property = _PyType_Lookup(t, name);
  if (property == nullptr || !Py_IS_TYPE(property, &PyProperty_Type)) return nullptr;
  PyTypeObject* plain = PyType_Check(obj) ? &PyType_Type : &PyBaseObject_Type;
  if (_PyType_Lookup(t, g_str_getattribute) != _PyType_Lookup(plain, g_str_getattribute)) return nullptr;
  PyObject* f = behind_property(t, name, property, "fget");
  if (f == nullptr) return nullptr;
  static PyObject* const fget = PyUnicode_InternFromString("fget");
  read_type_attr(s, t, name, property);
  reach(s, property);
  attr_load(s, property, fget, f);
  return f;
}

}  // namespace magpy
