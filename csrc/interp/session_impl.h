// What the parts of the session share: its structures, the small tests on objects, and the
// operations on outside objects.
//
// Owns: the layout of `_interp.Session` and the tables of the process.  Does not own: any behaviour
// beyond a few lines.  Included by session.cpp (the Python type), session_state.cpp (outside
// objects), session_attributes.cpp (attributes and classes), session_classes.cpp, session_slots.cpp
// (what C code calls in classes), session_events.cpp and session_calls.cpp (what the probes report)
// only.
#pragma once

#include "errors.h"
#include "leaf.h"
#include "ref.h"
#include "session.h"
#include "signals.h"

#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace magpy {

enum Kind : uint8_t {
  kDictKey,    // dict, key, value or ABSENT
  kLinkDict,   // object, its instance dict
  kTypeAttr,   // type, name, value or ABSENT
  kSuper,      // type of the instance, (class after which to look, name), value or ABSENT
  kAttrC,      // object, name, value of a C descriptor, or ABSENT
  kCell,       // cell, -, content or ABSENT
  kFunc,       // function, -, (code, defaults, kwdefaults)
  kSnap,       // container, -, its content before the program wrote to it
  kWriteAttr,  // object, name, old value of a C descriptor or ABSENT
  kWriteType,  // type, name, old value or ABSENT
  kObject,     // an outside object was reached
  kType,       // object, -, its class
  kListItem,  // list, place (negative: from the end), the element there before the program wrote to
              // it
  kDictDel,   // dict, key that was deleted, what was there
  kProtocols,  // type, -, ((name, value or ABSENT), ..): its special methods
  kKeys,       // dict, -, its keys before the program wrote to it
  kListLength,  // list, -, how many elements it has
  kValueAt,  // list or dict, a number or text from outside that is an input, the value there
};
inline const char* const kKindNames[] = {
    "dict_key",   "link_dict",  "type_attr", "super", "attr_c",    "cell",     "func",     "snap",
    "write_attr", "write_type", "object",    "type",  "list_item", "dict_del", "protocols", "keys",
    "list_length", "value_at"};

// What the session does around a call of something that is not a Python frame
// (magpy/models/c_function_tables.py mirrors the values).
enum Leaf : uint8_t {
  kLeafFrame = 0,
  kLeafTouch = 1,
  kLeafPure = 2,
  kLeafGetattr = 3,
  kLeafSetattr = 4,
  kLeafDelattr = 5,
  kLeafDictGet = 6,
  kLeafBlind = 7,
  kLeafDictSet = 8,
  kLeafHandler = 9,
  kLeafTorch = 10,
  kLeafDictDefault = 11,
};

inline PyObject* g_module = nullptr;  // magpy._interp, borrowed: it is never unloaded
inline PyObject* g_absent = nullptr;  // the ABSENT sentinel
inline PyTypeObject* g_deque_type = nullptr;
inline PyTypeObject* g_partial_type = nullptr;
inline PyTypeObject* g_defaultdict_type = nullptr;
inline PyTypeObject* g_namespace_type = nullptr;
inline PyTypeObject* g_method_wrapper_type = nullptr;  // has no public name on every version
// The classes and dicts of modules by whose names torch tells a mode of its operations.
inline std::unordered_set<PyObject*> g_homes;
inline PyObject* g_str_dict = nullptr;
inline PyObject* g_str_class = nullptr;
inline PyObject* g_str_getattr = nullptr;
inline PyObject* g_str_getattribute = nullptr;
inline PyObject* g_str_setattr = nullptr;
inline PyObject* g_str_delattr = nullptr;
inline PyObject* g_str_call = nullptr;
inline PyObject* g_str_get = nullptr;
inline PyObject* g_str_set = nullptr;
inline std::unordered_map<void*, uint8_t>
    g_leaves;  // verdicts on C callables, by what identifies them
inline std::unordered_map<void*, uint8_t>
    g_leaf_code;  // Python code objects that are called as a whole (held)

struct Triple {
  uintptr_t a, b;
  uint8_t kind;
  bool operator==(const Triple& o) const { return a == o.a && b == o.b && kind == o.kind; }
};
struct TripleHash {
  size_t operator()(const Triple& t) const {
    uintptr_t h = (t.a >> 4) * 0x9E3779B97F4A7C15ull;
    h ^= ((t.b >> 4) + 0x7F4A7C15ull) * 0xC2B2AE3D27D4EB4Full + t.kind;
    return h ^ (h >> 29);
  }
};

// (file, line, name) of counters: names that the code which starts at that line both reads and
// stores.  The strings are held.
inline std::unordered_set<Triple, TripleHash> g_counters;

struct Event {
  Ref obj;
  Ref key;
  Ref value;
  Kind kind;
};

struct Container {
  Ref pre;    // shallow copy from before the first write (or whole read)
  Ref order;  // of a set: its elements as they came when `pre` was copied, which may give them in
              // another order
  bool whole = false;
  Py_ssize_t appended =
      0;  // so many elements were appended, one at a time, to a deque that was not looked into
  bool unlogged = false;  // whether the run may have changed it in ways that `stores` does not tell
  bool asked = false;     // whether the run has asked it for a key that is an input (tables.h)
  bool table = false;     // whether the run has changed it at such keys
};

// What the run itself has put at a key of a dict, at a place of a list (from its beginning), in a
// slot or a class (by name), or, with no key, in a cell or at the end of a list or a deque.
struct Store {
  PyObject* holder;   // in `outside`
  Ref key;
  Ref value;          // where nobody can tell that it is held: a number, a text
  PyObject* address;  // of the value, or nullptr for what is deleted; only to compare it
};

// The session's own code runs: nothing of it is watched, and no signal interrupts it.
struct PauseGuard {
  SignalHold signals;
  PauseGuard() { ++tls_pause; }
  ~PauseGuard() { --tls_pause; }
};

inline bool is_leaf(PyObject* v) {
  PyTypeObject* t = Py_TYPE(v);
  return t == &PyLong_Type || t == &PyUnicode_Type || v == Py_None || t == &PyFloat_Type ||
         t == &PyBool_Type || t == &PyBytes_Type || t == &PyComplex_Type || v == Py_Ellipsis ||
         v == Py_NotImplemented || t == &PyRange_Type || t == &PyCode_Type ||
         (t == &PySlice_Type && is_leaf(reinterpret_cast<PySliceObject*>(v)->start) &&
          is_leaf(reinterpret_cast<PySliceObject*>(v)->stop) &&
          is_leaf(reinterpret_cast<PySliceObject*>(v)->step));
}

// The same text as the interpreter's own names: those are compared by their identity.
inline Ref intern(PyObject* text) {
  Ref name = Ref::borrow(text);
  PyUnicode_InternInPlace(name.place());
  return name;
}

struct WrapperObject {  // the layout of CPython's method-wrapper (Objects/descrobject.c), stable
                        // since 3.0
  PyObject_HEAD PyWrapperDescrObject* descr;
  PyObject* self;
};

// What a C function that is given another one calls it with: its receiver, what a partial holds.
struct Bound {
  PyObject* parts[3];
};
Bound bound_parts(PyObject* f);
// What a staticmethod or a classmethod holds, or none.
Ref inner_function(PyObject* f);
PyObject* bound_self(PyObject* f);

inline bool is_heap(PyTypeObject* t) { return (t->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }
// A C function or a C method of that name, of whatever module.
inline bool is_builtin(PyObject* f, const char* name) {
  return PyCFunction_Check(f) &&
         std::strcmp(reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name, name) == 0;
}
inline bool is_deque(PyObject* v) {
  return g_deque_type != nullptr && PyObject_TypeCheck(v, g_deque_type);
}

// What a session holds of objects, all of which goes when the session is cleared.
struct Held {
  Ref handler;  // magpy.capture.python.callbacks.Handler
  RefSet outside;
  std::vector<Event> log;
  std::unordered_set<Triple, TripleHash> seen;
  std::unordered_map<PyObject*, Container> containers;  // keys are in `outside`
  RefMap<Ref> cells;                                    // outside cells -> content before a write
  std::unordered_set<PyObject*> written_cells;          // in `cells`
  std::unordered_set<PyObject*> counter_cells;          // in `cells`
  bool tables = false;                                  // whether there is one among `containers`
  std::unordered_map<PyObject*, std::vector<Ref>>
      new_keys;  // of OrderedDicts: inputs at which they had nothing before the run (tables.h)
  std::unordered_set<PyObject*> shown;  // OrderedDicts that others than torch's hooks have got
  std::unordered_set<PyObject*> numbered;               // containers in which numbers are inputs
  std::unordered_set<Triple, TripleHash>
      varying;  // (dict, key) and (cell, null) whose number differs from call to call
  std::unordered_set<Triple, TripleHash>
      differing;         // (holder, key or null for all): a read of it is told to the handler
  RefSet inputs;         // lists of numbers of which the handler may make tensors in every call
  RefMap<long> tracked;  // values that differ from call to call -> variable
  std::unordered_set<PyObject*> made;  // functions that the program made (addresses only)
  std::vector<Store> stores;
  Ref replaced;   // what a read of a counter gives instead
  Ref failure;    // first internal failure
};

// A Python object whose C++ members session.cpp makes and destroys, in memory that the type's
// allocator gives, all zero.
struct Session : PyObject, Held {
  unsigned long long events;
  unsigned long long ask_at;  // so many events from which on it is asked whether the run is given up
  bool after;        // whether what is told of is over
  PyObject* getter;  // of the property that is loaded, if a probe has called it; borrowed
  PyObject* advanced;  // the iterator that was looked into last (address only), and when
  unsigned long long advanced_at;
  int collecting;  // whether the collector runs after the call
  unsigned long switches;  // of threads, before the call
};

// What is looked at for the first time has been used already.
struct AfterGuard {
  Session* s;
  const bool before;
  explicit AfterGuard(Session* session) : s(session), before(session->after) { s->after = true; }
  ~AfterGuard() { s->after = before; }
  AfterGuard(const AfterGuard&) = delete;
  AfterGuard& operator=(const AfterGuard&) = delete;
};

inline bool known_outside(Session* s, PyObject* o) { return s->outside.has(o); }

inline bool first_time(Session* s, Kind kind, PyObject* obj, PyObject* key) {
  return s->seen
      .insert(Triple{reinterpret_cast<uintptr_t>(obj), reinterpret_cast<uintptr_t>(key), kind})
      .second;
}

inline bool seen(Session* s, Kind kind, PyObject* obj, PyObject* key) {
  return s->seen.count(
             Triple{reinterpret_cast<uintptr_t>(obj), reinterpret_cast<uintptr_t>(key), kind}) != 0;
}

inline bool is_container(PyObject* o) {
  return PyDict_Check(o) || PyList_Check(o) || PySet_Check(o) || PyByteArray_Check(o) ||
         is_deque(o);
}

// What is taken apart, and put together, without a look at its elements, which stay the same
// objects.
inline bool is_sequence(PyObject* v) { return PyTuple_Check(v) || PyList_Check(v); }

inline bool tracked(Session* s, PyObject* o) {
  return !s->tracked.empty() && o != nullptr && s->tracked.has(o);
}

// ---------------------------------------------------------------- session_items.cpp

// An object written in C whose operations may ask methods of the program and compute with what they
// answer.  Lists take over what they are given.
bool computes(PyObject* o);

// ---------------------------------------------------------------- session_classes.cpp

// Whether calling this makes a class.
bool makes_class(PyObject* f, PyObject* const* args, Py_ssize_t npos);
// Whether calling this runs code, or makes a function, whose globals are a dict of the run's.
bool runs_in_made_dict(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                       PyObject* kwnames);
// A class, or each of a tuple of classes, is asked whether something is one of it, or is derived
// from.
void read_classes(Session* s, PyObject* classes, bool derived);

// ---------------------------------------------------------------- session_state.cpp

// A key can be held in the log when it is nothing that the program made and eager would free or
// observe.
bool plain_key(PyObject* k);
// Whether a dict is asked for a key, or given what stands under it, and no code of the program's
// runs: a plain one, or one that is there already and is looked for by its identity.
bool known_key(Session* s, PyObject* dict, PyObject* key);
// The first internal failure is kept; an exception that is set is its reason.
void fail(Session* s, const char* where);
void emit(Session* s, Kind kind, PyObject* obj, PyObject* key, PyObject* value);
// An exception says that something is not there.  Where memory or the stack is gone, or somebody
// interrupts, nothing is known: then the capture is dropped.
void not_there(Session* s, const char* where);
// Makes v an outside object.
void reach(Session* s, PyObject* v, int depth = 0);
// A function's code, defaults and closure count, as they do from when it is called.
void read_function(Session* s, PyFunctionObject* func);
// A statement looks for a name among the builtins of its frame.
void read_builtin(Session* s, PyObject* name);
// Keeps a shallow copy of an outside container, once.
bool ensure_pre(Session* s, PyObject* o);
// Asks the Python side, with events off; a failure there drops the capture, and gives none.
Ref ask_all(Session* s, const char* method, PyObject* const* args, size_t n);
template <class... Args>
Ref ask(Session* s, const char* method, Args... args) {
  PyObject* all[] = {args...};
  return ask_all(s, method, all, sizeof...(args));
}
// Now and then the handler is asked whether the run is given up; then nothing is watched from here
// on, and the rest of the call costs what it costs eagerly.
void ask_whether_given_up(Session* s);
inline void count_event(Session* s) {
  if (++s->events >= s->ask_at) ask_whether_given_up(s);
}
// The tracked values in an argument, where a C function would find them; looks as far as C
// functions do.  With out == nullptr it only tells whether there is one.
bool find_tracked(Session* s, PyObject* v, std::vector<PyObject*>* out);
// Whether iterating over it gives its elements themselves and asks nothing of them: a tuple, a
// list, a dict, a view of one, an iterator written in C (those that compute rely on what they hold
// when they are advanced, iterators.h).
bool passes_elements_on(Session* s, PyObject* v);
inline bool has_tracked(Session* s, PyObject* v) {
  return !s->tracked.empty() && find_tracked(s, v, nullptr);
}
// For tp_traverse: appends a referent (borrowed) to a std::vector<PyObject*>.
int collect_referent(PyObject* referent, void* todo);
// From here on the run relies on the value being what it was.
void rely_on(Session* s, PyObject* o);
// A value came of an operation with tracked operands.  Steals result.
PyObject* derive(Session* s, const char* method, int op, PyObject* a, PyObject* b,
                 PyObject* result);
// An object is looked into as a whole; `deep`: so are the containers in it.
void touch(Session* s, PyObject* o, bool deep);
// The same for what passes its elements on without a look at them: they stay known by their
// identity.
void touch_kept(Session* s, PyObject* o, bool deep);
// A dict is made of another, or of pairs, into which is looked.
void touch_pairs(Session* s, PyObject* o);
// How many entries an outside dict has was asked, or whether it has any: its keys are read, and not
// what is under them.  False if more is to be read.
bool read_keys(Session* s, PyObject* dict);
// The length of an outside list was asked for, which is guarded alone.  False: it must be looked at
// as a whole.
bool read_length(Session* s, PyObject* list);
void read_type_attr(Session* s, PyTypeObject* t, PyObject* name, PyObject* found);
// What a class inherits from was looked at.
void read_bases(Session* s, PyObject* cls);
// The class of an object was looked at.
void read_type(Session* s, PyObject* o);
// The interpreter, or C code, asks a class for its special methods.
void read_protocols(Session* s, PyTypeObject* t);
// Whether a class makes objects at all.
void read_abstract(Session* s, PyTypeObject* t);
// C code takes the name of a class into a text.
void read_name(Session* s, PyTypeObject* t);
void read_function_name(Session* s, PyObject* f);
// An object is compared with another by C code.
void touch_compared(Session* s, PyObject* o);
// A frame object is given to the program.
void read_frame(Session* s, PyObject* frame);
// A key of an outside dict was read; `now` is what is there, or nullptr.
void read_dict(Session* s, PyObject* dict, PyObject* key, PyObject* now);
// Where a number is: at a key of a dict, or in a cell (key == nullptr).
// Equal keys have one number; nullptr is a cell's key.
uintptr_t key_number(PyObject* key);
inline Triple place_of_number(PyObject* holder, PyObject* key) {
  return Triple{reinterpret_cast<uintptr_t>(holder), key_number(key), 0};
}
// Whether what is at a place differs from call to call, and is of a kind that can be an input: a
// number, a text or bytes.
bool may_vary(Session* s, PyObject* holder, PyObject* key, PyObject* value);
// Whether the code that runs now is one that reads and stores this name.
bool counts_here(PyObject* name);
// The dict of an object from outside; nullptr if it has none, or has none yet and `is_read` alone,
// and tells of that.  Borrowed.
PyObject* instance_dict(Session* s, PyObject* obj, bool is_read = true);
// What identifies a counter: the code that both reads and stores the name.
Triple counter_key(PyCodeObject* code, PyObject* name);
// A counter was read: true when it became an input, which take_replaced then gives.
bool counter_read(Session* s, PyObject* dict, PyObject* name, PyObject* value);
PyObject* take_replaced(Session* s, PyObject* value);
bool outside_object(Session* s, PyObject* o);
bool written(Session* s, PyObject* obj, PyObject* name);
void attr_load(Session* s, PyObject* obj, PyObject* name, PyObject* value);
// `itself`: what is called is the descriptor that stores, no `__setattr__` of a class comes first.
void attr_store(Session* s, PyObject* obj, PyObject* name, PyObject* value, bool itself = false);
// What stands in a class, and is not a Python function: a special method, a function of a property.
bool is_protocol(PyObject* name);
// The attributes by which C code tells a mapping that it is given, of an object from outside.
void read_mapping_names(Session* s, PyObject* o);
void slot_found(Session* s, PyTypeObject* t, PyObject* name, PyObject* found);
// What a callable that is no Python function does.
uint8_t classify(Session* s, PyObject* f);
// A C function that looks into what it is given, with `self` behind it or nullptr, is given
// callables, which it may call.
void callables_given(Session* s, PyObject* f, PyObject* self, PyObject* const* args, Py_ssize_t n);
// The factory of a defaultdict, or nullptr.
PyObject* factory_of(PyObject* dict);
// C code may call it.
void factory_used(Session* s, PyObject* factory);
// An attribute is about to be asked for: a descriptor written in Python, in the class of the object
// or in the class that it is, is from outside before its code runs.
void reach_descriptor(Session* s, PyObject* obj, PyObject* name);
// What a class of the program's has of C for all attributes (`__getattr__ = dict.__getitem__`), or
// nullptr; borrowed.
PyObject* hook_of_c(PyTypeObject* t, PyObject* name);
// It has given an attribute, or nothing; it is about to store one, or to delete it.
void attribute_read_by_c(Session* s, PyObject* hook, PyObject* obj, PyObject* name,
                         PyObject* value);
void attribute_written_by_c(Session* s, PyObject* hook, PyObject* obj, PyObject* name,
                            PyObject* value);
// The `__getattr__` of a module (PEP 562) has been called.
void module_hook_used(Session* s, PyObject* module, PyObject* hook);
void property_used(Session* s, PyTypeObject* t, PyObject* name, PyObject* property,
                   const char* which);
// Whether a property is that of a class written in C.
bool is_c_property(PyTypeObject* t, PyObject* name, PyObject* property);
// The getter that a probe is to call as the program's own call, or none.
Ref getter_to_call(Session* s, PyObject* obj, PyObject* name);
// A descriptor of C is called by itself: `Class.slot.__set__(object, value)`, and after `__get__`.
void descriptor_called(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos);
void descriptor_gave(Session* s, PyObject* f, PyObject* const* args, Py_ssize_t npos,
                     PyObject* result);
// Whether another thread has run since the call began.
bool others_ran(Session* s);
// Notes what the run itself puts somewhere, or deletes there when value is nullptr.
void note_store(Session* s, PyObject* holder, PyObject* key, PyObject* value);
void refuse_replaced(Session* s, PyObject* home, PyObject* name);
// Another thread has changed what the run reads: what it read before, and what its calls will, may
// not go together.
void refuse_race(Session* s, PyObject* holder);
// Whether what is at a key of a dict, or a place of a list, is what the run has put there last.
bool stored_by_run(Session* s, PyObject* holder, PyObject* key, PyObject* now);
// A key of an outside dict is stored, or deleted when value is nullptr.
void dict_store(Session* s, PyObject* d, PyObject* key, PyObject* value, bool stored = true);
bool may_count(PyObject* value);
// The class attribute through which C code found this method: a frame that a slot, a property or a
// metaclass entered.
void method_origin(Session* s, PyFunctionObject* func, PyObject* self);

}  // namespace magpy
