// See observer.h.  The callback runs for every operator of the thread, below autograd and inside
// composite operators too.
#include "observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <structmember.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

namespace magpy {

namespace {

enum Flag : unsigned {
  kDataDependent = 1,  // tag data_dependent_output: item(), equal(), ...
  kDynamicShape = 2,   // tag dynamic_output_shape: nonzero(), masked_select(), unique(), ...; and
                       // whatever may be so
  kRandom = 4,         // tag nondeterministic_seeded: dropout, randn, ...
  kMutates = 8,        // the schema writes to an argument
  kStatistics = 16,    // in training it writes running statistics, of which neither schema nor
                       // version counters tell
  kLooks =
      64,  // Python, and no other operator, asks for a value of data: item(), bool(), equal(), ...
  kReadsNumber = 128,  // item(), bool(): no work, but a value that Python is given
  kSeveral = 32,  // the schema writes to other arguments than the first and `out`, of which version
                  // counters may not tell
};

struct ObserverObject {
  PyObject_HEAD unsigned flags;
  at::CallbackHandle handle;       // 0: not started
  long long count;                 // operators that Python called
  int outer_depth, outer_running;  // those of who watches already
};

// The observers started on this thread; a nested one leaves the outer one watching.
thread_local std::vector<ObserverObject*> observers;
// How many operators are running.  What an operator writes to inside itself (x + 1 fills a tensor
// with the 1) is no argument of the program's, so that kMutates and kSeveral count at the outermost
// one only; nor does Python hear of a value that one asks for (kLooks).
thread_local int depth = 0;
// How many of them the dispatcher knows: the others are ranges, such as a torch.autograd.Function,
// in which Python may run.
thread_local int operators = 0;

struct Range : at::ObserverContext {};

// Operators by the address of their schema's name, which lives as long as the operator.  An address
// may come to be used by another operator, or by a range that is none, so the text is compared as
// well.
struct Known {
  std::string name, overload;
  unsigned flags;
};

// Namespaces whose operators have the tags that they deserve, with the exceptions below.
// Collectives among them: the shapes of what they give follow from the shapes, sizes and groups
// that they are given.
constexpr const char* kTagged[] = {
    "aten::",   "prims::",   "prim::",     "quantized::",        "mkldnn::",
    "onednn::", "sparse::",  "profiler::", "_c10d_functional::", "_c10d_functional_autograd::",
    "c10d::",   "_dtensor::"};
// Their result's shape follows from data, and no tag tells.
constexpr const char* kUntagged[] = {"aten::_pack_padded_sequence"};

// What gives Python a number that a tensor holds.
constexpr const char* kNumbers[] = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"};

// What computes statistics and writes them into the arguments running_mean and running_var.
constexpr const char* kRunningStatistics[] = {
    "aten::native_batch_norm",       "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",       "aten::batch_norm_update_stats",
    "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts",
};

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// What is asked of the shapes of a program's own operators is checked in every call: nobody says
// whether they follow from data.
bool may_be_dynamic(const std::string& name) {
  auto is = [&](const char* known) { return name == known; };
  auto begins = [&](const char* known) { return starts_with(name, known); };
  return std::any_of(std::begin(kUntagged), std::end(kUntagged), is) ||
         std::none_of(std::begin(kTagged), std::end(kTagged), begins);
}

unsigned flags_of(const c10::OperatorName& name) {
  auto found = c10::Dispatcher::singleton().findSchema(name);
  if (!found) return 0;
  unsigned flags = 0;
  const bool is_index = name.name == "aten::index" || name.name == "aten::_unsafe_index";
  for (at::Tag tag : found->getTags()) {
    if (tag == at::Tag::data_dependent_output) flags |= kDataDependent | kLooks;
    // Indexing has the tag for the sake of masks; a mask shows itself by the nonzero() it is turned
    // into.
    if (tag == at::Tag::dynamic_output_shape && !is_index) flags |= kDynamicShape;
    if (tag == at::Tag::nondeterministic_seeded) flags |= kRandom;
  }
  if (may_be_dynamic(name.name)) flags |= kDynamicShape;
  auto is = [&](const char* known) { return name.name == known; };
  if (std::any_of(std::begin(kNumbers), std::end(kNumbers), is) ||
      starts_with(name.name, "profiler::"))
    flags |= kReadsNumber;
  if (name.name == "aten::is_nonzero") flags |= kLooks;  // what bool() calls, made of item()
  if (std::any_of(std::begin(kRunningStatistics), std::end(kRunningStatistics), is))
    flags |= kStatistics;
  if (!found->schema().is_mutable()) return flags;
  const auto& arguments = found->schema().arguments();
  for (size_t i = 1; i < arguments.size(); i++) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite() && !arguments[i].is_out()) flags |= kSeveral;
  }
  return flags | kMutates;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& record) {
  static thread_local std::unordered_map<const char*, Known> known;
  const char *name = record.name(), *overload = record.overload_name();
  unsigned flags;
  auto it = known.find(name);
  if (it != known.end() && it->second.name == name && it->second.overload == overload) {
    flags = it->second.flags;
  } else {
    auto full = record.operator_name();
    if (!full) {
      depth++;
      return std::make_unique<Range>();
    }
    flags = flags_of(*full);
    known[name] = {name, overload, flags};
  }
  if (depth++ > 0) flags &= ~(unsigned)(kMutates | kSeveral);
  const bool called = operators++ == 0;
  if (!called) flags &= ~(unsigned)kLooks;
  // What autograd's engine calls is no operation of the program's.
  const bool counts =
      called && (flags & kReadsNumber) == 0 && torch::autograd::get_current_graph_task_id() == -1;
  for (ObserverObject* observer : observers) {
    observer->flags |= flags & ~(unsigned)kReadsNumber;
    observer->count += counts;
  }
  return nullptr;
}

void on_operator_end(const at::RecordFunction&, at::ObserverContext* range) {
  if (depth > 0) depth--;
  if (range == nullptr && operators > 0) operators--;
}

PyObject* observer_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Observer", const_cast<char**>(names)))
    return nullptr;
  return type->tp_alloc(type, 0);
}

void stop(ObserverObject* self) {
  auto it = std::find(observers.begin(), observers.end(), self);
  if (it == observers.end()) return;
  observers.erase(it);
  depth = self->outer_depth;
  operators = self->outer_running;
  at::CallbackHandle handle = self->handle;
  self->handle = 0;
  // The callback belongs to the observer that came first; hand it on while others watch.
  if (!handle) return;
  if (observers.empty()) {
    at::removeCallback(handle);
  } else {
    observers.front()->handle = handle;
  }
}

PyObject* observer_start(PyObject* object, PyObject*) {
  auto* self = (ObserverObject*)object;
  if (std::find(observers.begin(), observers.end(), self) != observers.end()) Py_RETURN_NONE;
  try {
    self->outer_depth = depth;
    self->outer_running = operators;
    depth = operators = 0;
    if (observers.empty()) {
      self->handle =
          at::addThreadLocalCallback(at::RecordFunctionCallback(on_operator, on_operator_end)
                                         .scopes({at::RecordScope::FUNCTION}));
    }
    observers.push_back(self);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* observer_stop(PyObject* object, PyObject*) {
  stop((ObserverObject*)object);
  Py_RETURN_NONE;
}

PyObject* observer_take(PyObject* object, PyObject*) {
  auto* self = (ObserverObject*)object;
  unsigned flags = self->flags;
  self->flags = 0;
  return PyLong_FromUnsignedLong(flags);
}

void observer_dealloc(PyObject* object) {
  stop((ObserverObject*)object);
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef observer_methods[] = {
    {"start", observer_start, METH_NOARGS, "Watches the operators of this thread from now on."},
    {"stop", observer_stop, METH_NOARGS,
     "Stops watching; to be called on the thread that started."},
    {"take", observer_take, METH_NOARGS,
     "take() -> int: the flags seen since the last take, which are forgotten."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef observer_members[] = {
    {"operators", T_LONGLONG, offsetof(ObserverObject, count), 0,
     "how many operators Python called, but for those that read a number"},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject Observer_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int init_observer(PyObject* module) {
  Observer_Type.tp_name = "magpy._tensor.Observer";
  Observer_Type.tp_basicsize = sizeof(ObserverObject);
  Observer_Type.tp_flags = Py_TPFLAGS_DEFAULT;
  Observer_Type.tp_doc = "Watches what kinds of operators run on a thread.";
  Observer_Type.tp_new = observer_new;
  Observer_Type.tp_dealloc = observer_dealloc;
  Observer_Type.tp_methods = observer_methods;
  Observer_Type.tp_members = observer_members;
  if (PyType_Ready(&Observer_Type) < 0 ||
      PyModule_AddObjectRef(module, "Observer", (PyObject*)&Observer_Type) < 0)
    return -1;
  if (PyModule_AddIntConstant(module, "DATA_DEPENDENT", kDataDependent) < 0 ||
      PyModule_AddIntConstant(module, "DYNAMIC_SHAPE", kDynamicShape) < 0 ||
      PyModule_AddIntConstant(module, "RANDOM", kRandom) < 0 ||
      PyModule_AddIntConstant(module, "STATISTICS", kStatistics) < 0 ||
      PyModule_AddIntConstant(module, "SEVERAL", kSeveral) < 0 ||
      PyModule_AddIntConstant(module, "LOOKS", kLooks) < 0) {
    return -1;
  }
  return PyModule_AddIntConstant(module, "MUTATES", kMutates);
}

}  // namespace magpy
