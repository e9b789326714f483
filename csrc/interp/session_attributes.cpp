// Attributes and classes: what the session makes of a read, a write or a look at the class of an
// object.
//
// Owns: how an attribute is found (instance dict, class, descriptor, metaclass, module) in terms of
// events, and the special methods that C code and the interpreter ask a class for.  Does not own:
// containers, snapshots and what is outside (session_state.cpp). Called by session_events.cpp and
// session_calls.cpp.

#include "classes.h"
#include "dispatch.h"
#include "leaf.h"
#include "session_impl.h"

#include <structmember.h>

#include <cstring>

namespace magpy {

// Whether the run has written this C descriptor of an outside object: what is read there is the
// run's own.
bool written(Session* s, PyObject* obj, PyObject* name) {
  return s->seen.count(Triple{reinterpret_cast<uintptr_t>(obj), reinterpret_cast<uintptr_t>(name),
                              kWriteAttr}) != 0;
}

// The class that gives an attribute to a class and its objects, or nullptr.
static PyTypeObject* owner_of(PyTypeObject* t, PyObject* name) {
  for (Py_ssize_t i = 0; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (base->tp_dict != nullptr && PyDict_GetItemWithError(base->tp_dict, name) != nullptr)
      return base;
  }
  return nullptr;
}

// Whether the run has stored what is found there.
static bool stored_in_class(Session* s, PyTypeObject* t, PyObject* name) {
  PyTypeObject* owner = owner_of(t, name);
  return owner != nullptr &&
         s->seen.count(Triple{reinterpret_cast<uintptr_t>(owner), reinterpret_cast<uintptr_t>(name),
                              kWriteType}) != 0;
}

static bool written_in(Session* s, PyTypeObject* t, PyObject* name) {
  for (Py_ssize_t i = 0; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(t->tp_mro, i);
    if (s->seen.count(Triple{reinterpret_cast<uintptr_t>(base), reinterpret_cast<uintptr_t>(name),
                             kWriteType}) != 0)
      return true;
  }
  return false;
}

// What the run has deleted from a class may be found in another one that it inherits from.
static void read_other_bases(Session* s, PyTypeObject* t, PyObject* name) {
  if (s->seen.empty() || !written_in(s, t, name) || stored_in_class(s, t, name)) return;
  for (Py_ssize_t i = 1; t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (is_heap(base) && !written_in(s, base, name))
      read_type_attr(s, base, name, _PyType_Lookup(base, name));
  }
}

void read_type_attr(Session* s, PyTypeObject* t, PyObject* name, PyObject* found) {
  read_other_bases(s, t, name);
  if (!first_time(s, kTypeAttr, reinterpret_cast<PyObject*>(t), name)) return;
  emit(s, kTypeAttr, reinterpret_cast<PyObject*>(t), name, found);
  slot_found(s, t, name, found);
}

void read_bases(Session* s, PyObject* cls) {
  auto* t = reinterpret_cast<PyTypeObject*>(cls);
  // The guard on a class compares its MRO whichever attribute was looked up.
  if (PyType_Check(cls) && is_heap(t))
    read_type_attr(s, t, g_str_class, _PyType_Lookup(t, g_str_class));
}

void read_type(Session* s, PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (!is_heap(t) || written(s, o, g_str_class)) return;
  if (known_outside(s, o) && first_time(s, kType, o, nullptr))
    emit(s, kType, o, nullptr, reinterpret_cast<PyObject*>(t));
  read_bases(s, reinterpret_cast<PyObject*>(t));
}

// What the interpreter and C code look for in the class of an object: the special methods of the
// data model, and the protocols of the standard library, of numpy and of torch.
static const char* const kProtocolNames =
    "__new__ __init__ __del__ __init_subclass__ __class_getitem__ __mro_entries__ __prepare__ "
    "__set_name__ __match_args__ "
    "__getattr__ __getattribute__ __setattr__ __delattr__ __dir__ __get__ __set__ __delete__ "
    "__instancecheck__ __subclasscheck__ "
    "__repr__ __str__ __bytes__ __format__ __hash__ __bool__ __call__ __lt__ __le__ __eq__ __ne__ "
    "__gt__ __ge__ "
    "__len__ __length_hint__ __getitem__ __setitem__ __delitem__ __missing__ __iter__ __next__ "
    "__reversed__ __contains__ "
    "__add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __matmul__ "
    "__rmatmul__ __imatmul__ "
    "__truediv__ __rtruediv__ __itruediv__ __floordiv__ __rfloordiv__ __ifloordiv__ __mod__ "
    "__rmod__ __imod__ "
    "__divmod__ __rdivmod__ __pow__ __rpow__ __ipow__ __lshift__ __rlshift__ __ilshift__ "
    "__rshift__ __rrshift__ __irshift__ "
    "__and__ __rand__ __iand__ __xor__ __rxor__ __ixor__ __or__ __ror__ __ior__ __neg__ __pos__ "
    "__abs__ __invert__ "
    "__complex__ __int__ __float__ __index__ __round__ __trunc__ __floor__ __ceil__ "
    "__enter__ __exit__ __await__ __aiter__ __anext__ __aenter__ __aexit__ __buffer__ "
    "__fspath__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __getstate__ __setstate__ "
    "__module__ "
    "__array__ __array_interface__ __array_struct__ __array_ufunc__ __array_function__ "
    "__array_priority__ __dlpack__ "
    "__torch_function__ __torch_dispatch__ "
    // What C code asks mappings and time zones for by their plain names (dict_merge,
    // _count_elements, call_tzinfo_method).
    "keys items get utcoffset dst tzname fromutc";

// C code takes the name of a function into a text.
void read_function_name(Session* s, PyObject* f) {
  static PyObject* const qualname = PyUnicode_InternFromString("__qualname__");
  if (qualname == nullptr || !outside_object(s, f) || written(s, f, qualname) ||
      !first_time(s, kAttrC, f, qualname))
    return;
  emit(s, kAttrC, f, qualname, reinterpret_cast<PyFunctionObject*>(f)->func_qualname);
}

// C code takes the name of a class into a text.
void read_name(Session* s, PyTypeObject* t) {
  static PyObject* const qualname = PyUnicode_InternFromString("__qualname__");
  static PyObject* const module = PyUnicode_InternFromString("__module__");
  if (!is_heap(t) || qualname == nullptr || module == nullptr) return;
  read_type_attr(s, t, module, _PyType_Lookup(t, module));
  auto* cls = reinterpret_cast<PyObject*>(t);
  if (written(s, cls, qualname) || !first_time(s, kAttrC, cls, qualname)) return;
  emit(s, kAttrC, cls, qualname, reinterpret_cast<PyHeapTypeObject*>(t)->ht_qualname);
}

void read_abstract(Session* s, PyTypeObject* t) {
  static PyObject* const name = PyUnicode_InternFromString("__abstractmethods__");
  if (!is_heap(t) || name == nullptr || t->tp_dict == nullptr) return;
  PyObject* methods = PyDict_GetItemWithError(t->tp_dict, name);
  auto* cls = reinterpret_cast<PyObject*>(t);
  if (methods == nullptr)
    read_type_attr(s, t, name, _PyType_Lookup(t, name));  // `__abstractmethods__` may be assigned
  if (methods == nullptr || written(s, cls, name) || !first_time(s, kAttrC, cls, name)) return;
  emit(s, kAttrC, cls, name, methods);
}

static PyObject* protocol_names() {
  static PyObject* const names = [] {
    const Ref text = Ref::steal(PyUnicode_FromString(kProtocolNames));
    PyObject* all = text ? PyUnicode_Split(text.get(), nullptr, -1) : nullptr;
    for (Py_ssize_t i = 0; all != nullptr && i < PyList_GET_SIZE(all); ++i)
      PyUnicode_InternInPlace(&PyList_GET_ITEM(all, i));
    return all;
  }();
  return names;
}

bool is_protocol(PyObject* name) {
  PyObject* names = protocol_names();
  const int found = names ? PySequence_Contains(names, name) : -1;
  if (found < 0) PyErr_Clear();
  return found > 0;
}

// What has a plain name and cannot be called makes C code raise, whatever it is: it may be another
// number in every call.
static bool cannot_be_called(Session* s, PyObject* holder, PyObject* name, PyObject* found) {
  if (found == nullptr || PyCallable_Check(found) || found == g_absent) return false;
  ask(s, "plain_name", holder, name);
  return true;
}

// What is done with an object of a Python class follows from the methods that the class has, and
// from those that it does not have.
void read_protocols(Session* s, PyTypeObject* t) {
  PyObject* const names = protocol_names();
  auto* cls = reinterpret_cast<PyObject*>(t);
  if (!is_heap(t) || !first_time(s, kProtocols, cls, nullptr)) return;
  const Py_ssize_t n = names ? PyList_GET_SIZE(names) : 0;
  Ref list = Ref::steal(PyList_New(0));
  for (Py_ssize_t i = 0; list && i < n; ++i) {
    PyObject* name = PyList_GET_ITEM(names, i);
    PyObject* found = _PyType_Lookup(t, name);
    if (PyUnicode_READ_CHAR(name, 0) != '_' && found != nullptr &&
        Py_TYPE(found)->tp_descr_get == nullptr && cannot_be_called(s, cls, name, found))
      continue;
    const Ref pair = Ref::steal(PyTuple_Pack(2, name, found ? found : g_absent));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) list.reset();
  }
  const Ref pairs = Ref::steal(list && n > 0 ? PyList_AsTuple(list.get()) : nullptr);
  if (!pairs) return fail(s, "protocols");
  emit(s, kProtocols, cls, nullptr, pairs.get());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs.get()); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs.get(), i);
    PyObject* found = PyTuple_GET_ITEM(pair, 1);
    if (found != g_absent) slot_found(s, t, PyTuple_GET_ITEM(pair, 0), found);
  }
  if (t->tp_repr == PyBaseObject_Type.tp_repr) read_name(s, t);
}

void read_mapping_names(Session* s, PyObject* o) {
  static PyObject* const names[] = {PyUnicode_InternFromString("keys"),
                                    PyUnicode_InternFromString("items"),
                                    PyUnicode_InternFromString("get")};
  PyTypeObject* t = Py_TYPE(o);
  const bool holds = t->tp_iter != nullptr ||
                     (t->tp_as_mapping != nullptr && t->tp_as_mapping->mp_subscript != nullptr) ||
                     (t->tp_as_sequence != nullptr && t->tp_as_sequence->sq_item != nullptr);
  PyObject* d = is_heap(t) && holds ? instance_dict(s, o) : nullptr;
  if (d == nullptr || !known_outside(s, d)) return;
  for (PyObject* name : names) {
    PyObject* now = name ? PyDict_GetItemWithError(d, name) : nullptr;
    if (now == nullptr && PyErr_Occurred()) return fail(s, "a mapping's names");
    if (cannot_be_called(s, o, name, now)) continue;
    read_dict(s, d, name, now);
  }
}

void touch_compared(Session* s, PyObject* o) {
  if (is_leaf(o)) return;
  PyTypeObject* t = Py_TYPE(o);
  if (is_heap(t) && t->tp_richcompare == PyBaseObject_Type.tp_richcompare)
    read_protocols(s, t);  // it is equal to itself only
  else
    touch(s, o, true);
}

// Likewise of a number that a class, or what it derives from, holds.  False: its value is to be
// compared.
static bool class_number_read(Session* s, PyTypeObject* t, PyObject* name, PyObject* value) {
  auto* cls = reinterpret_cast<PyObject*>(t);
  const bool varies = may_vary(s, cls, name, value);
  if (!is_heap(t) || (!varies && !may_count(value))) return false;
  const bool input = s->tracked.has(value);
  if (!input && !varies && !counts_here(name)) return false;
  auto seen = [&](PyTypeObject* o, Kind kind) {
    return s->seen.count(Triple{reinterpret_cast<uintptr_t>(o), reinterpret_cast<uintptr_t>(name),
                                kind}) != 0;
  };
  PyTypeObject* owner = nullptr;
  bool hidden = false;  // the run may have taken it away where it hid the one that is found now
  for (Py_ssize_t i = 0;
       t->tp_mro != nullptr && i < PyTuple_GET_SIZE(t->tp_mro) && owner == nullptr; ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
    if (is_heap(base) && base->tp_dict != nullptr &&
        PyDict_GetItemWithError(base->tp_dict, name) == value)
      owner = base;
    else
      hidden = hidden || seen(base, kWriteType);
  }
  if (owner == nullptr || (owner->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0) return false;
  if (hidden && input) rely_on(s, value);
  if (hidden || (!input && (seen(owner, kWriteType) || !first_time(s, kTypeAttr, cls, name))))
    return false;
  // One number may be found through several classes, each of which must come by it in the same way.
  if (!input || owner != t) {
    ask(s, "inherits", cls, name);
  }
  if (input) return true;
  Ref fresh = ask(s, "counter", cls, name, value);
  if (!fresh ||
      PyType_Type.tp_setattro(reinterpret_cast<PyObject*>(owner), name, fresh.get()) < 0) {
    fail(s, "counter");
    return true;
  }
  s->replaced = std::move(fresh);
  return true;
}

// Whether it is what a slot of an object holds; of other descriptors of C nobody can tell without
// asking them again.
static bool in_slot(Session* s, PyObject* descr, PyObject* obj, PyObject* value) {
  if (Py_TYPE(descr) != &PyMemberDescr_Type ||
      reinterpret_cast<PyMemberDescrObject*>(descr)->d_member->type != T_OBJECT_EX)
    return true;
  const Ref held = Ref::steal(
      Py_TYPE(descr)->tp_descr_get(descr, obj, reinterpret_cast<PyObject*>(Py_TYPE(obj))));
  if (!held) not_there(s, "slot");
  return held.get() == value;
}

// A counter, or a number that others store, in a slot of an object whose class is the program's
// (see counter_read).
static bool slot_number_read(Session* s, PyObject* obj, PyObject* name, PyObject* descr,
                             PyObject* value) {
  if (Py_TYPE(descr) != &PyMemberDescr_Type || !is_heap(PyDescr_TYPE(descr))) return false;
  const bool varies = may_vary(s, obj, name, value);
  if (reinterpret_cast<PyMemberDescrObject*>(descr)->d_member->type != T_OBJECT_EX ||
      (!varies && !may_count(value)))
    return false;
  if (s->tracked.has(value)) return true;
  if (!varies && !counts_here(name)) return false;
  if (!first_time(s, kAttrC, obj, name)) return false;
  Ref fresh = ask(s, "counter", obj, name, value);
  if (!fresh || Py_TYPE(descr)->tp_descr_set(descr, obj, fresh.get()) < 0) {
    fail(s, "counter");
    return true;
  }
  s->replaced = std::move(fresh);
  return true;
}

// Whether an object has no dict so far, and tells of that: a partial, an exception (see
// dict_as_it_is).
static bool is_without_dict(PyObject* obj) {
  if (!PyExceptionInstance_Check(obj) &&
      (g_partial_type == nullptr || !PyObject_TypeCheck(obj, g_partial_type)))
    return false;
  if (PyType_HasFeature(Py_TYPE(obj), Py_TPFLAGS_MANAGED_DICT)) return false;
  PyObject** slot = _PyObject_GetDictPtr(obj);
  return slot != nullptr && *slot == nullptr;
}

PyObject* instance_dict(Session* s, PyObject* obj, bool is_read) {
  PyTypeObject* t = Py_TYPE(obj);
  if (PyType_Check(obj)) return nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  bool has = (t->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0 || t->tp_dictoffset != 0;
#else
  bool has = t->tp_dictoffset != 0;
#endif
  if (!has) return nullptr;
  if (is_read && is_without_dict(obj)) {
    static PyObject* const nothing = PyUnicode_InternFromString("nothing in its dict");
    if (first_time(s, kSnap, obj, nothing)) ask(s, "without_attributes", obj);
    return nullptr;
  }
  // The object holds its dict as long as it lives, and outside objects are held.
  PyObject* d = Ref::steal(PyObject_GenericGetDict(obj, nullptr)).get();
  if (d == nullptr) PyErr_Clear();
  if (d == nullptr || !PyDict_Check(d)) return nullptr;
  if (written(s, obj, g_str_dict)) return d;  // the run has put it there
  s->outside.add(d);
  if (first_time(s, kLinkDict, obj, nullptr)) emit(s, kLinkDict, obj, nullptr, d);
  return d;
}

// Whether the run has given an object a dict of its own making.
static bool has_made_dict(Session* s, PyObject* obj) {
  if (!written(s, obj, g_str_dict)) return false;
  PyObject* d = instance_dict(s, obj);
  return d != nullptr && !known_outside(s, d);
}

static bool is_content(PyObject* obj, PyObject* name) {
  return PyCell_Check(obj) && PyUnicode_CompareWithASCIIString(name, "cell_contents") == 0;
}

static void know_cell(Session* s, PyObject* cell) { s->cells.add(cell); }

bool outside_object(Session* s, PyObject* o) {
  if (PyModule_Check(o)) return true;
  if (PyFunction_Check(o)) return s->made.find(o) == s->made.end();
  return known_outside(s, o);
}

// Makes what was found in a class an object from outside, unless the run has stored it there.
static void reach_found(Session* s, PyTypeObject* t, PyObject* name, PyObject* v) {
  if (!stored_in_class(s, t, name)) reach(s, v);
}

void reach_descriptor(Session* s, PyObject* obj, PyObject* name) {
  PyTypeObject* types[] = {Py_TYPE(obj),
                           PyType_Check(obj) ? reinterpret_cast<PyTypeObject*>(obj) : nullptr};
  for (PyTypeObject* t : types) {
    if (t == nullptr || !is_heap(t)) continue;
    PyObject* found = _PyType_Lookup(t, name);
    if (found != nullptr && is_heap(Py_TYPE(found)) && Py_TYPE(found)->tp_descr_get != nullptr)
      reach_found(s, t, name, found);
  }
}

// What a class gives: what was found there itself, or what a static or class method holds, which
// may be any object.
static void reach_given(Session* s, PyTypeObject* t, PyObject* name, PyObject* found,
                        PyObject* value) {
  if (found == nullptr) return;
  if (found == value) return reach_found(s, t, name, value);
  const Ref inner = inner_function(found);
  if (inner && !stored_in_class(s, t, name)) reach(s, inner.get());
}

// The dict from outside that the run has given to an object of its own (`self.__dict__ = shared`),
// or nullptr; borrowed.
static PyObject* shared_dict(Session* s, PyObject* obj) {
  if (PyType_Check(obj) || PyModule_Check(obj)) return nullptr;
  const Ref d = dict_as_it_is(obj);
  return d && PyDict_Check(d.get()) && known_outside(s, d.get()) ? d.get()
                                                                 : nullptr;  // the object holds it
}

// Whether it is not the object's own dict that gives the attribute.
static bool read_from_class(Session* s, PyObject* obj, PyObject* name) {
  if (!outside_object(s, obj)) return false;
  PyObject* d = instance_dict(s, obj);
  return d == nullptr || item_or_null(d, name) == nullptr;
}

// Whether the object's own dict gives the attribute.
static bool has_itself(PyObject* obj, PyObject* name, PyObject* value) {
  const Ref d = value != nullptr ? dict_as_it_is(obj) : Ref();
  return d && PyDict_Check(d.get()) && item_or_null(d.get(), name) == value;
}

static void super_read(Session* s, PyObject* super, PyObject* name, PyObject* value) {
  PauseGuard pause;
  const Ref holds_self = Ref::steal(PyObject_GetAttrString(super, "__self_class__"));
  const Ref holds_this = Ref::steal(PyObject_GetAttrString(super, "__thisclass__"));
  PyObject *self_class = holds_self.get(), *this_class = holds_this.get();
  if (self_class != nullptr && this_class != nullptr && PyType_Check(self_class)) {
    PyObject* mro = reinterpret_cast<PyTypeObject*>(self_class)->tp_mro;
    Ref holds_found;
    PyObject* found = nullptr;
    bool after = false;
    for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro) && found == nullptr; ++i) {
      PyObject* cls = PyTuple_GET_ITEM(mro, i);
      if (after && PyType_Check(cls)) {
        // A mapping proxy; static types have no tp_dict of their own on 3.12+.
        const Ref d = Ref::steal(PyObject_GetAttr(cls, g_str_dict));
        holds_found = Ref::steal(d ? PyObject_GetItem(d.get(), name) : nullptr);
        found = holds_found.get();
        if (found == nullptr) not_there(s, "super");
      }
      if (cls == this_class) after = true;
    }
    if (first_time(s, kSuper, self_class, name)) {
      const Ref key = Ref::steal(PyTuple_Pack(2, this_class, name));
      if (!key) return fail(s, "super");
      emit(s, kSuper, self_class, key.get(), found);
      // A second class in the same chain asks under the same name: it must not be taken for seen.
      s->seen.erase(Triple{reinterpret_cast<uintptr_t>(self_class),
                           reinterpret_cast<uintptr_t>(name), kSuper});
    }
    if (found != nullptr && found == value) reach(s, value);
    if (found != nullptr && found != value) reach(s, inner_function(found).get());
    if (found != nullptr)
      property_used(s, reinterpret_cast<PyTypeObject*>(self_class), name, found, "fget");
  } else {
    not_there(s, "super");
  }
}

// What a module has in its own dict for attributes that it has not (PEP 562).
static void read_module_hook(Session* s, PyObject* module, PyObject* d) {
  PyObject* hook = PyDict_GetItemWithError(d, g_str_getattr);
  read_dict(s, d, g_str_getattr, hook);
  module_hook_used(s, module, hook);
}

void attr_load(Session* s, PyObject* obj, PyObject* name, PyObject* value) {
  if (PyModule_Check(obj) && !is_heap(Py_TYPE(obj))) {
    PyObject* d = instance_dict(s, obj);
    if (d == nullptr) return;
    PyObject* in_dict = PyDict_GetItemWithError(d, name);
    if (in_dict == nullptr || in_dict != value || !counter_read(s, d, name, in_dict))
      read_dict(s, d, name, in_dict);
    if (in_dict == nullptr) read_module_hook(s, obj, d);
    return;
  }
  PyTypeObject* t = Py_TYPE(obj);
  if (PyType_Check(obj)) {
    auto* as_type = reinterpret_cast<PyTypeObject*>(obj);
    PyObject* found = _PyType_Lookup(as_type, name);
    if (found == nullptr || found != value || !class_number_read(s, as_type, name, found)) {
      if (is_heap(as_type)) read_type_attr(s, as_type, name, found);
    }
    if (is_heap(t)) {
      read_type_attr(s, t, name, _PyType_Lookup(t, name));
      read_protocols(s, t);
    }
    if (found != nullptr && is_heap(Py_TYPE(found)))
      read_protocols(s, Py_TYPE(found));  // is it a descriptor?
    reach_given(s, as_type, name, found, value);
    if (is_heap(t)) {
      PyObject* of_meta = _PyType_Lookup(t, name);
      if (of_meta != nullptr && is_heap(Py_TYPE(of_meta))) {
        read_protocols(s, Py_TYPE(of_meta));  // is it a descriptor?
        reach_found(s, t, name, of_meta);
      }
      if (value != found) reach_given(s, t, name, of_meta, value);
      property_used(s, t, name, of_meta, "fget");
    }
    PyObject* meta = is_heap(as_type) && value != nullptr
                         ? _PyType_Lookup(t, name)
                         : nullptr;
    if (meta != nullptr && Py_TYPE(meta)->tp_descr_get != nullptr && !is_heap(Py_TYPE(meta)) &&
        value != found &&
        (Py_TYPE(meta) == &PyGetSetDescr_Type || Py_TYPE(meta) == &PyMemberDescr_Type)) {
      // What the class itself holds in C: its name, its bases, its dict.
      if (value == as_type->tp_mro)
        read_bases(s, obj);
      else if (name != g_str_dict && !written(s, obj, name) && first_time(s, kAttrC, obj, name))
        emit(s, kAttrC, obj, name, value);
      reach(s, value);
    }
    return;
  }
  if (t == &PySuper_Type) {
    super_read(s, obj, name, value);
    return;
  }
  PyObject* descr = _PyType_Lookup(t, name);
  if (is_heap(t)) {
    if (descr == nullptr || descr != value || !read_from_class(s, obj, name) ||
        !class_number_read(s, t, name, descr))
      read_type_attr(s, t, name, descr);
    read_type_attr(s, t, g_str_getattribute, _PyType_Lookup(t, g_str_getattribute));
    if (value == nullptr || t->tp_getattro != PyObject_GenericGetAttr)
      read_type_attr(s, t, g_str_getattr, _PyType_Lookup(t, g_str_getattr));
  }
  if (descr != nullptr && is_heap(Py_TYPE(descr)))
    read_protocols(s, Py_TYPE(descr));  // is it a descriptor, and one that comes first?
  property_used(s, t, name, descr, "fget");
  if (PyObject* hook = hook_of_c(t, g_str_getattribute))
    return attribute_read_by_c(s, hook, obj, name, value);
  if (PyMethod_Check(obj) && !known_outside(s, obj)) {
    // One that was bound just now shows its function's attributes.
    static PyObject* const str_doc = PyUnicode_InternFromString("__doc__");
    if (descr == nullptr || name == str_doc) attr_load(s, PyMethod_GET_FUNCTION(obj), name, value);
    return;
  }
  if (!outside_object(s, obj)) {
    static PyObject* const str_context = PyUnicode_InternFromString("__context__");
    if (name == str_context && PyExceptionInstance_Check(obj)) {
      // It was raised while this one was being handled: by the call or by its caller.
      ask(s, "handles", value == nullptr ? Py_None : value);
    }
    if (descr != nullptr && is_heap(Py_TYPE(descr))) reach_found(s, t, name, descr);
    PyObject* d =
        descr == nullptr || Py_TYPE(descr)->tp_descr_set == nullptr ? shared_dict(s, obj) : nullptr;
    PyObject* in_dict = d != nullptr ? item_or_null(d, name) : nullptr;
    if (d != nullptr &&
        (in_dict == nullptr || in_dict != value || !counter_read(s, d, name, in_dict)))
      read_dict(s, d, name, in_dict);
    if (in_dict == nullptr) reach_given(s, t, name, descr, value);
    return;
  }
  if (descr != nullptr && is_heap(Py_TYPE(descr)))
    reach_found(s, t, name, descr);  // a descriptor written in Python has state of its own
  if (name == g_str_class) {
    read_type(s, obj);
    return;
  }
  if (is_content(obj, name)) {
    know_cell(s, obj);
    on_cell_load(obj, value);
    if (PyCell_GET(obj) != value) s->replaced = Ref::borrow(PyCell_GET(obj));
    return;
  }
  if (descr != nullptr && Py_TYPE(descr)->tp_descr_set != nullptr) {
    if (Py_TYPE(descr) == &PyProperty_Type && !is_c_property(t, name, descr)) return;
    if (is_heap(Py_TYPE(descr))) return;  // a descriptor written in Python: its frame is watched
    if (name == g_str_dict) {
      instance_dict(s, obj);
      return;
    }
    // What torch keeps of a tensor is the recorder's; a subclass may have slots.
    if (is_tensor(obj) && Py_TYPE(descr) != &PyMemberDescr_Type) return;
    if (value != nullptr && !in_slot(s, descr, obj, value))
      value = nullptr;  // a `__getattr__` has given it
    if (written(s, obj, name) || slot_number_read(s, obj, name, descr, value) ||
        !first_time(s, kAttrC, obj, name))
      return;
    emit(s, kAttrC, obj, name, value);
    reach(s, value);
    return;
  }
  // Torch's own methods are not looked for in a tensor's dict, unless it was that which gave the
  // value (`_values` of a nested tensor); what a subclass says may be there too.
  if (is_tensor(obj) && descr != nullptr && descr == _PyType_Lookup(g_tensor_type, name) &&
      !has_itself(obj, name, value))
    return;
  PyTypeObject* base = c_base(t);
  const bool module = PyModule_Check(obj);
  if (base->tp_getattro != PyObject_GenericGetAttr && base->tp_getattro != nullptr &&
      !PyMethod_Check(obj) && !module) {
    touch(s, obj, false);  // attributes that C code looks up in its own way
    return;
  }
  PyObject* d = instance_dict(s, obj);
  PyObject* in_dict = nullptr;
  if (has_made_dict(s, obj)) {
    in_dict = item_or_null(d, name);
  } else if (d != nullptr) {
    in_dict = item_or_null(d, name);
    if (in_dict == nullptr || in_dict != value || !counter_read(s, d, name, in_dict))
      read_dict(s, d, name, in_dict);
  }
  if (in_dict == nullptr && descr == nullptr)
    if (PyObject* hook = hook_of_c(t, g_str_getattr))
      attribute_read_by_c(s, hook, obj, name, value);
  if (module && d != nullptr && in_dict == nullptr && descr == nullptr) read_module_hook(s, obj, d);
  if (in_dict == nullptr) reach_given(s, t, name, descr, value);
  if (d == nullptr && descr == nullptr && !is_heap(t) && first_time(s, kAttrC, obj, name)) {
    emit(s, kAttrC, obj, name, value);
    reach(s, value);
  }
}

// An attribute that a C descriptor keeps is about to be written.  The first time, what is there is
// what was there.
static void attribute_written(Session* s, PyObject* obj, PyObject* name, PyObject* value,
                              bool stored = true) {
  if (stored) note_store(s, obj, name, value);
  if (!first_time(s, kWriteAttr, obj, name)) return;
  PauseGuard pause;
  const Ref old = Ref::steal(PyObject_GetAttr(obj, name));
  if (!old) not_there(s, "attribute");
  // What is assigned may be no dict: then this one stays.
  if (name == g_str_dict && old) s->outside.add(old.get());
  if (value == nullptr && first_time(s, kAttrC, obj, name)) emit(s, kAttrC, obj, name, old.get());
  emit(s, kWriteAttr, obj, name, old.get());
}

// Whether a class says in Python what becomes of a store (value == nullptr: of a deletion).
static bool stores_in_python(PyTypeObject* t, PyObject* value) {
  PyObject* hook = _PyType_Lookup(t, value != nullptr ? g_str_setattr : g_str_delattr);
  return hook != nullptr && PyFunction_Check(hook);
}

void attr_store(Session* s, PyObject* obj, PyObject* name, PyObject* value, bool itself) {
  PyTypeObject* t = Py_TYPE(obj);
  read_protocols(s, t);
  if (PyType_Check(obj)) {
    if (PyType_HasFeature(reinterpret_cast<PyTypeObject*>(obj), Py_TPFLAGS_IMMUTABLETYPE))
      return;  // it raises
    PyObject* of_class = _PyType_Lookup(t, name);
    if (of_class != nullptr && is_heap(t) && Py_TYPE(of_class)->tp_descr_set != nullptr &&
        (is_heap(Py_TYPE(of_class)) || PyObject_TypeCheck(of_class, &PyProperty_Type))) {
      // A descriptor of the metaclass's, written in Python: its frame is watched.
      read_type_attr(s, t, name, of_class);
      read_protocols(s, Py_TYPE(of_class));
      reach_found(s, t, name, of_class);
      property_used(s, t, name, of_class, value != nullptr ? "fset" : "fdel");
      return;
    }
    if (of_class != nullptr && Py_TYPE(of_class) == &PyGetSetDescr_Type) {
      // Not in the class's dict: its name, its bases.
      attribute_written(s, obj, name, value);
      return;
    }
    if (_PyType_Lookup(reinterpret_cast<PyTypeObject*>(obj), name) != nullptr)
      refuse_replaced(s, obj, name);
    const Ref d = Ref::steal(PyObject_GetAttr(obj, g_str_dict));
    const Ref old = Ref::steal(d ? PyObject_GetItem(d.get(), name) : nullptr);
    if (!old) not_there(s, "class attribute");
    // Only what is there can be deleted.
    if (value == nullptr && is_heap(reinterpret_cast<PyTypeObject*>(obj)) &&
        !stored_in_class(s, reinterpret_cast<PyTypeObject*>(obj), name))
      read_type_attr(s, reinterpret_cast<PyTypeObject*>(obj), name,
                     _PyType_Lookup(reinterpret_cast<PyTypeObject*>(obj), name));
    note_store(s, obj, name, value);
    if (first_time(s, kWriteType, obj, name)) {
      emit(s, kWriteType, obj, name, old.get());
      if (value == nullptr) ask(s, "deleted", obj, name);  // a base may have an equal one
    }
    return;
  }
  PyObject* descr = _PyType_Lookup(t, name);
  if (is_heap(t)) read_type_attr(s, t, name, descr);
  if (descr != nullptr && is_heap(Py_TYPE(descr)) && Py_TYPE(descr)->tp_descr_set != nullptr)
    reach_found(s, t, name, descr);
  if (descr != nullptr && Py_TYPE(descr) == &PyGetSetDescr_Type && !is_tensor(obj) &&
      (PyObject_CheckBuffer(obj) || tracked(s, obj))) {
    // An array copies what it is given (`a.real = v`), and its flags look at it.
    if (tracked(s, obj) && value != nullptr) {
      ask(s, "array_written", obj);
    } else {
      if (value != nullptr) rely_on(s, value);
      touch(s, obj, false);
    }
    return;
  }
  if (is_tensor(obj) && descr != nullptr && Py_TYPE(descr) == &PyGetSetDescr_Type)
    ask(s, "tensor_store", obj, name);
  if (PyObject* hook = hook_of_c(t, value != nullptr ? g_str_setattr : g_str_delattr))
    return attribute_written_by_c(s, hook, obj, name, value);
  property_used(s, t, name, descr, value != nullptr ? "fset" : "fdel");
  if (!outside_object(s, obj)) {
    PyObject* shared =
        descr == nullptr || Py_TYPE(descr)->tp_descr_set == nullptr ? shared_dict(s, obj) : nullptr;
    if (shared != nullptr) dict_store(s, shared, name, value);
    return;
  }
  if (is_content(obj, name)) {
    know_cell(s, obj);
    on_cell_store(obj, value);
    return;
  }
  // A Python __setattr__ comes first, and may put the value elsewhere (torch.nn.Module: a buffer);
  // when it ends in object.__setattr__ the session is told again.
  const bool stored = itself || !stores_in_python(t, value);
  if (descr != nullptr && is_heap(Py_TYPE(descr))) read_protocols(s, Py_TYPE(descr));
  if (descr != nullptr && Py_TYPE(descr)->tp_descr_set != nullptr) {
    if (Py_TYPE(descr) == &PyProperty_Type || is_tensor(obj) || is_heap(Py_TYPE(descr))) return;
    attribute_written(s, obj, name, value, stored);
    return;
  }
  PyObject* d = instance_dict(s, obj, value == nullptr);
  if (has_made_dict(s, obj)) return;
  if (d != nullptr) {
    dict_store(s, d, name, value, stored);
  } else {
    // C code of the class keeps it somewhere (threading.local).
    attribute_written(s, obj, name, value, stored);
  }
}

// The descriptor of C that a call of `__get__`, `__set__` or `__delete__` is made of, bound or not,
// and the place of the first argument after it; nullptr if it is no such call.
static PyObject* called_descriptor(PyObject* f, PyObject* const* args, Py_ssize_t npos,
                                   const char** name, Py_ssize_t* first) {
  PyWrapperDescrObject* wrapper = nullptr;
  PyObject* descr = nullptr;
  *first = 0;
  if (Py_IS_TYPE(f, g_method_wrapper_type)) {
    wrapper = reinterpret_cast<WrapperObject*>(f)->descr;
    descr = reinterpret_cast<WrapperObject*>(f)->self;
  } else if (Py_IS_TYPE(f, &PyWrapperDescr_Type) && npos > 0) {
    wrapper = reinterpret_cast<PyWrapperDescrObject*>(f);
    descr = args[0];
    *first = 1;
  }
  if (descr == nullptr ||
      (Py_TYPE(descr) != &PyMemberDescr_Type && Py_TYPE(descr) != &PyGetSetDescr_Type))
    return nullptr;
  *name = wrapper->d_base->name;
  return npos > *first && args[*first] != Py_None ? descr : nullptr;
}

static bool found_by_name(Session* s, PyObject* descr, PyObject* obj) {
  if (_PyType_Lookup(Py_TYPE(obj), PyDescr_NAME(descr)) == descr) return true;
  static PyObject* const reason =
      PyUnicode_InternFromString("a descriptor is called that another attribute hides");
  ask(s, "refuse", reason);
  return false;
}

void descriptor_called(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos) {
  const char* name;
  Py_ssize_t first;
  PyObject* descr = called_descriptor(f, args, npos, &name, &first);
  if (descr == nullptr || strcmp(name, "__get__") == 0) return;
  if (found_by_name(s, descr, args[first]))
    attr_store(s, args[first], PyDescr_NAME(descr), npos > first + 1 ? args[first + 1] : nullptr,
               true);
}

void descriptor_gave(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                     PyObject* result) {
  const char* name;
  Py_ssize_t first;
  PyObject* descr = called_descriptor(f, args, npos, &name, &first);
  if (descr == nullptr || strcmp(name, "__get__") != 0) return;
  if (PyUnicode_Compare(PyDescr_NAME(descr), g_str_dict) == 0) {
    // Whatever hides it, as the property of a compiled module does: it gives the instance dict.
    if (dict_as_it_is(args[first]).get() == result)
      return static_cast<void>(instance_dict(s, args[first]));
  }
  if (!found_by_name(s, descr, args[first])) return;
  attr_load(s, args[first], PyDescr_NAME(descr), result);
  if (!s->replaced) return;
  rely_on(s, s->replaced.get());  // what was given is what was there before
  s->replaced.reset();
}

// The class attribute through which C code found this method: a frame that a slot, a property or a
// metaclass entered.
void method_origin(Session* s, PyFunctionObject* func, PyObject* self) {
  PyTypeObject* t = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
  if (!is_heap(t)) return;
  if (!first_time(s, kFunc, reinterpret_cast<PyObject*>(func), reinterpret_cast<PyObject*>(t)))
    return;
  PyObject* name = reinterpret_cast<PyCodeObject*>(func->func_code)->co_name;
  PyObject* found = _PyType_Lookup(t, name);
  if (found != nullptr) {
    read_type_attr(s, t, name, found);
    if (found == reinterpret_cast<PyObject*>(func)) return;
  }
  PyObject* mro = t->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!PyType_Check(reinterpret_cast<PyObject*>(base)) || !is_heap(base) ||
        base->tp_dict == nullptr)
      continue;
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(base->tp_dict, &pos, &k, &v))
      if (v == reinterpret_cast<PyObject*>(func) && PyUnicode_Check(k))
        read_type_attr(s, t, k, _PyType_Lookup(t, k));
  }
}

}  // namespace magpy
