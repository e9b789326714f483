#include "looks.h"

#include <cstring>
#include <vector>

#include "classes.h"
#include "session_impl.h"

namespace magpy {

namespace {

constexpr Looks kEverything{Look::kAll, Look::kAll, false};
// What frames are given and give, which are watched.
constexpr Looks kHandsOn{Look::kAll, Look::kKept, true};

// What decides, beside the function, how far it looks.
enum class When : uint8_t {
  kAlways,
  kOneGiven,        // it is given one argument
  kCallsPython,     // its first argument is a function of Python, which is given the elements
  kKeyed,           // it looks at what a function of Python gives for each of them (`key=`)
  kKeyedOrEntries,  // or they are entries of a dict, whose keys tell which is the smaller one
  kStrInPython,     // it is given one object, whose text a method in Python makes
  kReprInPython,    // likewise by its `__repr__`
  kOfKeys,          // it is given a dict, its keys or its entries alone, and looks at the keys only
};

struct Known {
  const char* home;  // its module; of a method: the type
  const char* name;
  When when;
  Looks looks;
};

constexpr Look kKept = Look::kKept, kItself = Look::kItself, kPairs = Look::kPairs,
               kAll = Look::kAll;

constexpr Known kFunctions[] = {
    {"builtins", "len", When::kAlways, {kAll, kKept, false}},
    {"builtins", "next", When::kAlways, {kAll, kKept, true}},
    {"builtins",
     "iter",
     When::kOneGiven,
     {kAll, kKept, false}},  // with two it compares what a function gives
    {"builtins", "sorted", When::kOfKeys, {kAll, kKept, false}},
    {"builtins", "min", When::kOfKeys, {kAll, kKept, false}},
    {"builtins", "max", When::kOfKeys, {kAll, kKept, false}},
    {"builtins", "sorted", When::kKeyedOrEntries, {kAll, kItself, false}},
    {"builtins", "min", When::kKeyedOrEntries, {kAll, kItself, false}},
    {"builtins", "max", When::kKeyedOrEntries, {kAll, kItself, false}},
    {"builtins", "repr", When::kReprInPython, {kAll, kAll, true}},
    {"_functools", "reduce", When::kCallsPython, {kAll, kKept, true}},
    {"_functools", "reduce", When::kAlways, {kAll, kAll, true}},
};

constexpr Known kTypes[] = {
    {"builtins", "set", When::kOfKeys, {kAll, kKept, false}},
    {"builtins", "frozenset", When::kOfKeys, {kAll, kKept, false}},
    {"builtins", "list", When::kAlways, {kAll, kKept, true}},
    {"builtins", "tuple", When::kAlways, {kAll, kKept, true}},
    {"builtins", "enumerate", When::kAlways, {kAll, kKept, true}},
    {"builtins", "zip", When::kAlways, {kAll, kKept, true}},
    {"builtins", "reversed", When::kAlways, {kAll, kKept, false}},
    {"builtins", "map", When::kCallsPython, {kAll, kKept, true}},
    {"builtins", "map", When::kAlways, {kAll, kAll, true}},
    {"builtins", "filter", When::kCallsPython, {kAll, kKept, true}},
    {"builtins", "filter", When::kAlways, {kAll, kAll, true}},
    {"builtins", "str", When::kStrInPython, {kAll, kAll, true}},
    {"builtins", "bool", When::kAlways, {kAll, kItself, false}},
    {"builtins", "dict", When::kAlways, {kAll, kPairs, false}},
    {"itertools", "chain", When::kAlways, {kAll, kItself, false}},
    {"itertools", "islice", When::kAlways, {kAll, kItself, false}},
    {"itertools", "product", When::kAlways, {kAll, kItself, false}},
    {"itertools", "cycle", When::kAlways, {kAll, kItself, false}},
    {"itertools", "zip_longest", When::kAlways, {kAll, kItself, false}},
    {"itertools", "groupby", When::kKeyed, {kAll, kItself, false}},
};

// Of dicts, lists and deques.  What they are given chooses among their elements.
constexpr Known kMethods[] = {
    {"", "items", When::kAlways, {kKept, kAll, false}},
    {"", "values", When::kAlways, {kKept, kAll, false}},
    {"", "keys", When::kAlways, {kKept, kAll, false}},
    {"", "copy", When::kAlways, {kKept, kAll, false}},
    {"", "pop", When::kAlways, {kKept, kAll, false}},
    {"", "popleft", When::kAlways, {kKept, kAll, false}},
    {"", "popitem", When::kAlways, {kKept, kAll, false}},
    {"", "reverse", When::kAlways, {kKept, kAll, false}},
    {"", "sort", When::kKeyed, {kItself, kAll, false}},
};

bool is_python(PyObject* f) {
  return PyFunction_Check(f) || (PyMethod_Check(f) && PyFunction_Check(PyMethod_GET_FUNCTION(f)));
}

// The dict that a view of one is of; nullptr if there is none.
PyObject* viewed(PyObject* v) {
  std::vector<PyObject*> held;
  Py_TYPE(v)->tp_traverse(v, collect_referent, &held);
  return held.size() == 1 && PyDict_Check(held[0]) ? held[0] : nullptr;
}

bool keys_run_no_code(PyObject* dict) {
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &key, &value))
    if (runs_code(key)) return false;
  return true;
}

// Entries of a dict whose keys run no code and differ: which of two is the smaller one is asked of
// the keys alone.
bool are_entries(PyObject* v) {
  PyObject* dict = PyDictItems_Check(v) ? viewed(v) : nullptr;
  return dict != nullptr && keys_run_no_code(dict);
}

// A dict, or a view of one, of which C code that takes its elements looks at the keys alone.  A
// set looks at all of an entry.
bool gives_keys(PyObject* v, bool entries) {
  PyObject* dict = v;
  if (PyDictKeys_Check(v) || (entries && PyDictItems_Check(v))) dict = viewed(v);
  if (dict == nullptr || !PyDict_CheckExact(dict) || !keys_run_no_code(dict)) return false;
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &key, &value))
    if (PyTuple_Check(key)) return false;  // it may hold what differs from call to call
  return true;
}

bool holds(When when, PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  if (when == When::kAlways) return true;
  if (when == When::kOfKeys) return npos == 1 && gives_keys(args[0], !PyType_Check(f));
  if (when == When::kOneGiven) return npos == 1;
  if (when == When::kStrInPython || when == When::kReprInPython)
    return npos == 1 && kwnames == nullptr &&
           text_in_python(args[0], when == When::kStrInPython ? kStr : kRepr);
  if (when == When::kCallsPython) return npos > 0 && is_python(args[0]);
  for (Py_ssize_t i = 0; kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "key") == 0)
      return is_python(args[npos + i]);
  return when == When::kKeyedOrEntries && npos == 1 && are_entries(args[0]);
}

bool is_home(PyObject* module, const char* home) {
  return module != nullptr && PyUnicode_Check(module) &&
         PyUnicode_CompareWithASCIIString(module, home) == 0;
}

// `tp_name` of a type written in C: the module and the name, or the name alone for a builtin.
bool is_type(const char* found, const Known& known) {
  const char* dot = std::strrchr(found, '.');
  if (dot == nullptr)
    return std::strcmp(known.home, "builtins") == 0 && std::strcmp(found, known.name) == 0;
  return std::strncmp(found, known.home, dot - found) == 0 && known.home[dot - found] == '\0' &&
         std::strcmp(dot + 1, known.name) == 0;
}

// A class of Python's whose objects a `__new__` of Python's makes, and into which nothing looks
// after that.
bool made_in_python(PyTypeObject* type) {
  static PyObject* const str_new = PyUnicode_InternFromString("__new__");
  if (Py_TYPE(type) != &PyType_Type || type->tp_init != PyBaseObject_Type.tp_init) return false;
  PyObject* made_by = _PyType_Lookup(type, str_new);
  if (made_by == nullptr || PyFunction_Check(made_by)) return made_by != nullptr;
  const Ref inner = inner_function(made_by);
  return inner && PyFunction_Check(inner.get());
}

}  // namespace

bool text_in_python(PyObject* value, int conversion) {
  static PyObject* const names[] = {PyUnicode_InternFromString("__format__"),
                                    PyUnicode_InternFromString("__str__"),
                                    PyUnicode_InternFromString("__repr__")};
  if (conversion == kAscii) return false;
  // Each of object's own asks the next one.
  for (int i = conversion; i <= kRepr; ++i) {
    PyObject* found = names[i] == nullptr ? nullptr : _PyType_Lookup(Py_TYPE(value), names[i]);
    if (found == nullptr || PyFunction_Check(found)) return found != nullptr;
    if (found != _PyType_Lookup(&PyBaseObject_Type, names[i])) return false;
  }
  return false;
}

Looks looks_of(PyObject* f, PyObject* const* args, Py_ssize_t npos, PyObject* kwnames) {
  if (PyType_Check(f)) {
    auto* type = reinterpret_cast<PyTypeObject*>(f);
    if (c_base(type) != type) return made_in_python(type) ? kHandsOn : kEverything;
    for (const Known& known : kTypes)
      if (is_type(type->tp_name, known) && holds(known.when, f, args, npos, kwnames))
        return known.looks;
    return kEverything;
  }
  if (!PyCFunction_Check(f)) return kEverything;
  const char* name = reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name;
  if (PyObject* self = bound_self(f); self != nullptr) {
    if (!PyDict_Check(self) && !PyList_Check(self) && !is_deque(self)) return kEverything;
    for (const Known& known : kMethods)
      if (std::strcmp(name, known.name) == 0 && holds(known.when, f, args, npos, kwnames))
        return known.looks;
    return kEverything;
  }
  for (const Known& known : kFunctions)
    if (std::strcmp(name, known.name) == 0 &&
        is_home(reinterpret_cast<PyCFunctionObject*>(f)->m_module, known.home) &&
        holds(known.when, f, args, npos, kwnames))
      return known.looks;
  return kEverything;
}

namespace {

PyObject* compared() {
  static PyObject* const marker = PyUnicode_InternFromString("compares keys by code");
  return marker;
}

}  // namespace

bool look_for_key(Session* s, PyObject* dict, PyObject* key) {
  static PyObject* const asked = PyUnicode_InternFromString("code of its keys");
  bool code = !known_key(s, dict, key);
  if (code) {
    if (runs_code(key)) first_time(s, kSnap, dict, compared());  // it may be stored
  } else if (first_time(s, kSnap, dict, asked)) {
    PyObject *k, *value;
    Py_ssize_t pos = 0;
    while (!code && PyDict_Next(dict, &pos, &k, &value)) code = runs_code(k);
    if (code) first_time(s, kSnap, dict, compared());
  }
  if (code) touch(s, dict, false);
  return can_search(s, dict, key);
}

bool can_search(Session* s, PyObject* dict, PyObject* key) {
  return known_key(s, dict, key) && !compares_by_code(s, dict);
}

bool compares_by_code(Session* s, PyObject* dict) { return seen(s, kSnap, dict, compared()); }

}  // namespace magpy
