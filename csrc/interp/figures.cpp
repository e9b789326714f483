// See figures.h.
#include "figures.h"

#include "errors.h"

namespace magpy {

thread_local Tally tls_tally = {0, 0, 0};

namespace {

// Not on the C stack: a program that switches stacks (greenlets) may leave it in the middle.
struct Sample {
  PyObject* observer;  // none: no call is sampled
  PyObject* tags;
  bool spoiled;
};
thread_local Sample sample = {nullptr, nullptr, false};

constexpr const char* kCount = "operators";

}  // namespace

bool begin_sample() {
  if (sample.observer != nullptr) return false;
  const Ref module = Ref::steal(PyImport_ImportModule("magpy._tensor"));
  Ref observer =
      Ref::steal(module ? PyObject_CallMethod(module.get(), "Observer", nullptr) : nullptr);
  const Ref started =
      Ref::steal(observer ? PyObject_CallMethod(observer.get(), "start", nullptr) : nullptr);
  Ref tags = Ref::steal(started ? PyList_New(0) : nullptr);
  if (!tags) return PyErr_Clear(), false;
  sample = {observer.release(), tags.release(), false};
  return true;
}

Ref end_sample() {
  ErrorGuard error;
  const Ref observer = Ref::steal(sample.observer), tags = Ref::steal(sample.tags);
  sample.observer = sample.tags = nullptr;
  const Ref stopped = Ref::steal(PyObject_CallMethod(observer.get(), "stop", nullptr));
  const Ref count = Ref::steal(PyObject_GetAttrString(observer.get(), kCount));
  Ref found;
  if (stopped && count && !sample.spoiled)
    found = Ref::steal(PyTuple_Pack(2, count.get(), tags.get()));
  PyErr_Clear();
  return found;
}

void spoil_sample() { sample.spoiled = true; }

EntryRun::EntryRun() {
  if (sample.observer == nullptr) return;
  before_ = Ref::steal(PyObject_GetAttrString(sample.observer, kCount));
  PyErr_Clear();
}

EntryRun::~EntryRun() {
  if (!before_ || sample.observer == nullptr) return;
  ErrorGuard error;
  if (PyObject_SetAttrString(sample.observer, kCount, before_.get()) < 0) PyErr_Clear();
}

void EntryRun::served(PyObject* tag) {
  tls_tally.served++;
  if (sample.observer != nullptr && PyList_Append(sample.tags, tag) < 0) PyErr_Clear();
}

}  // namespace magpy
