// See state.h.
#include "state.h"

#include "ref.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <array>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace magpy {

namespace {

// Every switch is a number under a name for people.  Order is the order of comparison: what changes
// often comes first.
enum Field : uint8_t {
  kGradMode,
  kInferenceMode,
  kForwardGradMode,
  kMultithreading,
  kViewReplay,
  kGradLayout,
  kIncludedKeys,
  kExcludedKeys,
  kAutocastCpuDtype,
  kAutocastCudaDtype,
  kAutocastCache,
  kDefaultDtype,
  kFunctionDisabled,
  kFunctionModes,
  kDispatchModes,
  kInfraModes,
  kFunctorch,
  kSavedTensorHooks,
  kDeterministic,
  kDeterministicWarnOnly,
  kFillUninitialized,
  kTf32,
  kFp16Reduction,
  kBf16Reduction,
  kFp16Accumulation,
  kFp16ReductionCpu,
  kCudnn,
  kCudnnBenchmark,
  kCudnnBenchmarkLimit,
  kCudnnDeterministic,
  kMkldnn,
  kMkldnnDeterministic,
  kNnpack,
  kFlash,
  kMemEfficient,
  kMath,
  kCudnnAttention,
  kOverrideable,
  kReducedMath,
  kFlash3,
  kLinalgBackend,
  kQEngine,
  kAnomaly,
  kAnomalyNan,
  kThreads,
  kFlushDenormal,
  kCudaDevice,
  kFieldCount,
};

constexpr const char* kNames[kFieldCount] = {
    "grad mode (torch.no_grad, torch.enable_grad)",
    "inference mode",
    "forward-mode grad",
    "autograd multithreading",
    "autograd view replay",
    "gradient layout enforcement",
    "included dispatch keys",
    "excluded dispatch keys (autocast, inference mode, functorch)",
    "autocast dtype (cpu)",
    "autocast dtype (cuda)",
    "autocast cache",
    "default dtype",
    "torch function disabled",
    "torch function modes (torch.set_default_device is one)",
    "torch dispatch modes",
    "built-in dispatch modes",
    "functorch transform (vmap, grad, ...)",
    "saved tensor hooks",
    "deterministic algorithms",
    "deterministic algorithms: warn only",
    "fill uninitialized memory",
    "float32 precision (matmul, TF32)",
    "fp16 reduction (cuBLAS)",
    "bf16 reduction (cuBLAS)",
    "fp16 accumulation (cuBLAS)",
    "fp16 reduction (CPU)",
    "cudnn enabled",
    "cudnn benchmark",
    "cudnn benchmark limit",
    "cudnn deterministic",
    "mkldnn enabled",
    "mkldnn deterministic",
    "nnpack enabled",
    "flash attention",
    "memory-efficient attention",
    "math attention",
    "cudnn attention",
    "overrideable attention",
    "reduced-precision math attention",
    "flash attention 3",
    "linear algebra backend",
    "quantization engine",
    "anomaly mode",
    "anomaly mode: check nan",
    "number of threads",
    "flushing of denormal numbers",
    "current CUDA device",
};

using Fields = std::array<uint64_t, kFieldCount>;

uint64_t tf32_settings(const at::Context& context) {
  using B = at::Float32Backend;
  using O = at::Float32Op;
  auto word = (uint64_t)context.float32Precision(B::GENERIC, O::ALL);
  constexpr uint64_t kBase = 8;  // more than there are precisions
  static const bool has_cuda = at::Context::hasCUDA();
  for (O op : {O::ALL, O::CONV, O::RNN, O::MATMUL}) {
    word = word * kBase + (uint64_t)context.float32Precision(B::MKLDNN, op);
    if (has_cuda) word = word * kBase + (uint64_t)context.float32Precision(B::CUDA, op);
  }
  return word;
}

uint64_t flush_denormal() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 1u << 15, kDenormalsAreZero = 1u << 6;
  return _mm_getcsr() & (kFlushToZero | kDenormalsAreZero);
#else
  return 0;
#endif
}

uint64_t infra_modes() {
  using Key = c10::impl::TorchDispatchModeKey;
  uint64_t word = 0;
  for (int key = 0; key < (int)Key::NUM_MODE_KEYS; key++) {
    auto mode = c10::impl::TorchDispatchModeTLS::get_mode((Key)key);
    word = word * 31 + (mode && *mode ? (uint64_t)(uintptr_t)(*mode)->ptr(getPyInterpreter()) : 0);
  }
  return word;
}

// Inside a functorch transform no state equals another: the transform's own state (levels, batch
// sizes, randomness) is out of reach, and its tensors are never matched either.
uint64_t functorch_transform(c10::DispatchKeySet included) {
  static uint64_t unlike_any = 0;
  return included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ? ++unlike_any : 0;
}

uint64_t saved_tensor_hooks() {
  const auto& state = at::SavedTensorDefaultHooks::get_tls_state();
  uint64_t word = state.stack.size() * 2 + state.disabled_error_message.has_value();
  if (!state.stack.empty())
    word = word * 31 + (uint64_t)(uintptr_t)state.stack.top().first.ptr(getPyInterpreter());
  return word;
}

// Whether torch has started CUDA (torch.cuda._initialized).  To ask CUDA itself would start its
// driver, after which a forked child could not use it.
bool cuda_started() {
  static PyObject* names = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("torch.cuda"));
    PyObject* dict = module ? Py_NewRef(PyModule_GetDict(module.get())) : nullptr;
    if (!dict) PyErr_Clear();
    return dict;
  }();
  static PyObject* key = PyUnicode_InternFromString("_initialized");
  return names && key && PyDict_GetItemWithError(names, key) == Py_True;
}

// The device of new CUDA tensors: 0 until something else was chosen.
uint64_t cuda_device() {
  static const bool has_cuda = at::Context::hasCUDA();
  if (!has_cuda || !cuda_started()) return 0;
  return (uint64_t)c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index();
}

template <typename F>
void read_thread_state(F&& set) {
  const auto& autograd = c10::AutogradState::get_tls_state();
  set(kGradMode, autograd.get_grad_mode());
  set(kInferenceMode, autograd.get_inference_mode());
  set(kForwardGradMode, autograd.get_fw_grad_mode());
  set(kMultithreading, autograd.get_multithreading_enabled());
  set(kViewReplay, autograd.get_view_replay_enabled());
  set(kGradLayout, autograd.get_grad_layout_enforcement_enabled());
  auto keys = c10::impl::tls_local_dispatch_key_set();
  set(kIncludedKeys, keys.included_.raw_repr());
  set(kExcludedKeys, keys.excluded_.raw_repr());  // says too for which devices autocast is on
  set(kAutocastCpuDtype, (uint64_t)at::autocast::get_autocast_dtype(c10::DeviceType::CPU));
  set(kAutocastCudaDtype, (uint64_t)at::autocast::get_autocast_dtype(c10::DeviceType::CUDA));
  set(kAutocastCache, at::autocast::is_autocast_cache_enabled());
  set(kDefaultDtype, (uint64_t)c10::get_default_dtype_as_scalartype());
  set(kFunctionDisabled, (uint64_t)at::impl::PythonTorchFunctionTLS::get_disabled_state());
  set(kFunctionModes, (uint64_t)at::impl::PythonTorchFunctionTLS::stack_len());
  // A mode on the stack includes this key, and most calls have none: that saves the look at the
  // stack.
  bool dispatch_modes = keys.included_.has(c10::DispatchKey::Python);
  set(kDispatchModes, dispatch_modes ? (uint64_t)c10::impl::TorchDispatchModeTLS::stack_len() : 0);
  set(kInfraModes, dispatch_modes ? infra_modes() : 0);
  set(kFunctorch, functorch_transform(keys.included_));
  set(kSavedTensorHooks, saved_tensor_hooks());
}

template <typename F>
void read_global_state(F&& set) {
  const at::Context& context = at::globalContext();
  set(kDeterministic, context.deterministicAlgorithms());
  set(kDeterministicWarnOnly, context.deterministicAlgorithmsWarnOnly());
  set(kFillUninitialized, context.deterministicFillUninitializedMemory());
  set(kTf32, tf32_settings(context));
  set(kFp16Reduction, (uint64_t)context.allowFP16ReductionCuBLAS());
  set(kBf16Reduction, (uint64_t)context.allowBF16ReductionCuBLAS());
  set(kFp16Accumulation, context.allowFP16AccumulationCuBLAS());
  set(kFp16ReductionCpu, context.allowFP16ReductionCPU());
  set(kCudnn, context.userEnabledCuDNN());
  set(kCudnnBenchmark, context.benchmarkCuDNN());
  set(kCudnnBenchmarkLimit, (uint64_t)context.benchmarkLimitCuDNN());
  set(kCudnnDeterministic, context.deterministicCuDNN());
  set(kMkldnn, context.userEnabledMkldnn());
  set(kMkldnnDeterministic, context.deterministicMkldnn());
  set(kNnpack, context.userEnabledNNPACK());
  set(kFlash, context.userEnabledFlashSDP());
  set(kMemEfficient, context.userEnabledMemEfficientSDP());
  set(kMath, context.userEnabledMathSDP());
  set(kCudnnAttention, context.userEnabledCuDNNSDP());
  set(kOverrideable, context.userEnabledOverrideableSDP());
  set(kReducedMath, context.allowFP16BF16ReductionMathSDP());
  set(kFlash3, context.userEnabledFA3SDP());
  set(kLinalgBackend, (uint64_t)context.linalgPreferredBackend());
  set(kQEngine, (uint64_t)context.qEngine());
  set(kAnomaly, torch::autograd::AnomalyMode::is_enabled());
  set(kAnomalyNan, torch::autograd::AnomalyMode::should_check_nan());
  set(kThreads, (uint64_t)at::get_num_threads());
  set(kFlushDenormal, flush_denormal());
  set(kCudaDevice, cuda_device());
}

void read_state(Fields& fields) {
  auto set = [&fields](Field field, uint64_t value) { fields[field] = value; };
  read_thread_state(set);
  read_global_state(set);
}

// The objects on the mode stacks, bottom first; borrowed.
template <typename F>
bool each_mode(const Fields& fields, F&& visit) {
  for (uint64_t i = 0; i < fields[kFunctionModes]; i++) {
    if (!visit(at::impl::PythonTorchFunctionTLS::get_stack_at((int64_t)i)->ptr(getPyInterpreter())))
      return false;
  }
  for (uint64_t i = 0; i < fields[kDispatchModes]; i++) {
    if (!visit(c10::impl::TorchDispatchModeTLS::get_stack_at((int64_t)i)->ptr(getPyInterpreter())))
      return false;
  }
  return true;
}

struct State {
  Fields fields{};
  RefList modes;  // an address that is compared must not be reused
};

struct StateObject {
  PyObject_HEAD State* state;
};

// `with torch.device(..)` and `torch.set_default_device(..)`, of which each makes a mode of its
// own.  Borrowed, or nullptr.
PyObject* device_context() {
  static PyObject* type = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("torch.utils._device"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "DeviceContext") : nullptr;
    if (!found) PyErr_Clear();
    return found;
  }();
  return type;
}

// Whether two modes do the same: one mode, or two that make tensors on one device.
bool same_mode(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b) || (PyObject*)Py_TYPE(a) != device_context()) return false;
  const Ref device = Ref::steal(PyObject_GetAttrString(a, "device"));
  const Ref other = Ref::steal(device ? PyObject_GetAttrString(b, "device") : nullptr);
  const int same = other ? PyObject_RichCompareBool(device.get(), other.get(), Py_EQ) : -1;
  if (same < 0) PyErr_Clear();
  return same == 1;
}

bool modes_match(const State& state) {
  size_t i = 0;
  return each_mode(state.fields,
                   [&](PyObject* mode) {
                     return i < state.modes.size() && same_mode(state.modes.begin()[i++], mode);
                   }) &&
         i == state.modes.size();
}

// The index of the first field that differs, or -1.
int first_difference(const State& state) {
  Fields now{};
  read_state(now);
  if (now != state.fields) {
    for (int i = 0; i < kFieldCount; i++) {
      if (now[i] != state.fields[i]) return i;
    }
  }
  if (modes_match(state)) return -1;
  return kFunctionModes;
}

PyObject* state_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":TorchState", const_cast<char**>(names)))
    return nullptr;
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = (StateObject*)made.get();
  self->state = new (std::nothrow) State();
  if (!self->state) return PyErr_NoMemory();
  try {
    read_state(self->state->fields);
    each_mode(self->state->fields, [self](PyObject* mode) {
      self->state->modes.add(mode);
      return true;
    });
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return made.release();
}

int state_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* state = ((StateObject*)object)->state;
  if (state) {
    for (PyObject* mode : state->modes) Py_VISIT(mode);
  }
  return 0;
}

int state_clear(PyObject* object) {
  auto* state = ((StateObject*)object)->state;
  if (!state) return 0;
  state->modes.clear();
  return 0;
}

void state_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  state_clear(object);
  delete ((StateObject*)object)->state;
  Py_TYPE(object)->tp_free(object);
}

PyObject* state_py_matches(PyObject* self, PyObject*) {
  return PyBool_FromLong(state_matches(self));
}

PyObject* state_py_difference(PyObject* self, PyObject*) {
  PyObject* text = state_difference(self);
  if (!text && !PyErr_Occurred()) Py_RETURN_NONE;
  return text;
}

// None where the state has something to do with objects of this process, which no other has.
PyObject* state_py_values(PyObject* self, PyObject*) {
  const State& state = *((StateObject*)self)->state;
  for (Field field : {kFunctionModes, kDispatchModes, kInfraModes, kFunctorch, kSavedTensorHooks}) {
    if (state.fields[field] != 0) Py_RETURN_NONE;
  }
  Ref values = Ref::steal(PyTuple_New(kFieldCount));
  if (!values) return nullptr;
  for (int i = 0; i < kFieldCount; i++) {
    PyObject* value = PyLong_FromUnsignedLongLong(state.fields[i]);
    if (!value) return nullptr;
    PyTuple_SET_ITEM(values.get(), i, value);
  }
  return values.release();
}

PyObject* state_py_of(PyObject* type, PyObject* values) {
  if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) != kFieldCount)
    return PyErr_SetString(PyExc_ValueError, "these are not the values of a TorchState"), nullptr;
  Ref made = Ref::steal(((PyTypeObject*)type)->tp_alloc((PyTypeObject*)type, 0));
  if (!made) return nullptr;
  auto* self = (StateObject*)made.get();
  self->state = new (std::nothrow) State();
  if (!self->state) return PyErr_NoMemory();
  for (int i = 0; i < kFieldCount; i++) {
    const auto value = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(values, i));
    if (value == (unsigned long long)-1 && PyErr_Occurred()) return nullptr;
    self->state->fields[i] = value;
  }
  return made.release();
}

PyMethodDef state_methods[] = {
    {"values", state_py_values, METH_NOARGS,
     "values() -> tuple[int, ...] | None: the state as numbers that another process understands."},
    {"of", state_py_of, METH_O | METH_CLASS,
     "of(values) -> TorchState: the state that `values` told of, with the same torch."},
    {"matches", state_py_matches, METH_NOARGS,
     "matches() -> bool: is torch in this state now, on this thread?"},
    {"difference", state_py_difference, METH_NOARGS,
     "difference() -> str | None: what changed first."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject TorchState_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool state_matches(PyObject* object) {
  try {
    return first_difference(*((StateObject*)object)->state) < 0;
  } catch (const std::exception&) {
    return false;
  }
}

PyObject* state_difference(PyObject* object) {
  int field;
  try {
    field = first_difference(*((StateObject*)object)->state);
  } catch (const std::exception& error) {
    return PyUnicode_FromString(error.what());
  }
  return field < 0 ? nullptr : PyUnicode_FromFormat("%s changed", kNames[field]);
}

int init_state(PyObject* module) {
  TorchState_Type.tp_name = "magpy._tensor.TorchState";
  TorchState_Type.tp_basicsize = sizeof(StateObject);
  TorchState_Type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  TorchState_Type.tp_doc = "A snapshot of torch's global and thread-local state.";
  TorchState_Type.tp_new = state_new;
  TorchState_Type.tp_dealloc = state_dealloc;
  TorchState_Type.tp_traverse = state_traverse;
  TorchState_Type.tp_clear = state_clear;
  TorchState_Type.tp_methods = state_methods;
  if (PyType_Ready(&TorchState_Type) < 0) return -1;
  return PyModule_AddObjectRef(module, "TorchState", (PyObject*)&TorchState_Type);
}

}  // namespace magpy
