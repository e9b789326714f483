// Values whose identity says nothing: comparing and printing them without running Python code of
// the user's classes.
//
// Owns: which exact types count as leaves, when two leaves are the same value, the text of an
// object in a message.  Does not own: which values a guard compares.  Called by guards and anchors
// with the GIL held.  Nothing here leaves an exception set.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ref.h"

#if PY_VERSION_HEX >= 0x030D0000
// Exported by CPython for its own extension modules; 3.13 moved the declaration into an internal
// header.
extern "C" PyAPI_FUNC(int)
    _PySet_NextEntry(PyObject* set, Py_ssize_t* pos, PyObject** key, Py_hash_t* hash);
#endif

namespace magpy {

// Same object, or the same exact leaf type and the same value: floats by their bits (-0.0 is not
// 0.0) but any nan equals any nan, containers of leaves element by element.  Anything that is not a
// leaf equals only itself.
bool leaf_equal(PyObject* a, PyObject* b);

// Does `set` (a set or frozenset) give exactly the elements of the tuple, in this order?  Elements
// compare as leaves.
bool set_gives(PyObject* set, PyObject* expected);
// What it gives, as a tuple; runs no code of its class.  None with an exception set.
Ref set_elements(PyObject* set);
// What a set, a frozenset or a deque holds, in its order and not as the `__iter__` of its class
// says: a tuple, or none with an exception set.
Ref elements(PyObject* container);

// Is `value` a leaf all the way down, so that its repr runs no code of the user's?
bool is_deep_leaf(PyObject* value);

// PyUnicode_FromFormat; none with an exception set.
Ref format_text(const char* format, ...);
// A short text for messages; never none unless memory is gone (then the error is cleared).
Ref safe_text(PyObject* value);

// Makes `type` (a class whose == is C code without side effects, such as torch.device) compare by
// value.  Borrowed and kept.
int add_leaf_type(PyTypeObject* type);

// The raw value of `key`, borrowed, or nullptr.  `hash` was computed when the guard was built.
PyObject* raw_dict_get(PyObject* dict, PyObject* key, Py_hash_t hash);
// The dict of an object's attributes, which is not made for it: a `functools.partial` and an
// exception tell whether they have one (`partial_new`, `BaseException_reduce` in CPython).  An
// empty one of nobody's where it could have one, and none, without an exception, where it could
// not.
Ref dict_as_it_is(PyObject* object);
// torch.Tensor, or nullptr before `set_types`.
inline PyTypeObject* g_tensor_type = nullptr;
inline bool is_tensor(PyObject* v) {
  return g_tensor_type != nullptr && PyObject_TypeCheck(v, g_tensor_type);
}

// Whether to look for a key runs Python code that the program could notice: a `__hash__` or
// `__eq__` of its class, or of what is in it.  (Tensors have a `__hash__` of torch's, which gives
// their address.)
bool runs_code(PyObject* key);
// Whether a key is found by its identity alone: its class says nothing else, or is torch.Tensor.
bool by_identity(PyObject* key);
// What a dict has under a plain key or one of these, borrowed, without a call of Python's.
PyObject* dict_item(PyObject* dict, PyObject* key);
// The hash of a key; 0 for one that is looked for by its identity.
Py_hash_t key_hash(PyObject* key);
// The keys of `dict`, in its own order, are exactly `keys`.
bool raw_dict_keys_equal(PyObject* dict, PyObject* keys);

// An int of at most 48 bits: what is computed of a few of them fits in a tensor and becomes a
// float.
bool is_small_int(PyObject* value);

// tp_name, or the heap type's plain name.
const char* type_name(PyObject* value);

}  // namespace magpy
