// See figures.h.
#include "figures.h"

#include "errors.h"

namespace magpy {

namespace {

thread_local Figures figures = {0, 0, 0, nullptr, nullptr, false};

constexpr const char* kCount = "operators";

}  // namespace

Figures& thread_figures() { return figures; }

bool begin_sample() {
  if (figures.observer != nullptr) return false;
  const Ref module = Ref::steal(PyImport_ImportModule("magpy._tensor"));
  Ref observer =
      Ref::steal(module ? PyObject_CallMethod(module.get(), "Observer", nullptr) : nullptr);
  const Ref started =
      Ref::steal(observer ? PyObject_CallMethod(observer.get(), "start", nullptr) : nullptr);
  Ref tags = Ref::steal(started ? PyList_New(0) : nullptr);
  if (!tags) return PyErr_Clear(), false;
  figures.observer = observer.release();
  figures.tags = tags.release();
  figures.spoiled = false;
  return true;
}

Ref end_sample() {
  ErrorGuard error;
  const Ref observer = Ref::steal(figures.observer), tags = Ref::steal(figures.tags);
  figures.observer = figures.tags = nullptr;
  const Ref stopped = Ref::steal(PyObject_CallMethod(observer.get(), "stop", nullptr));
  const Ref count = Ref::steal(PyObject_GetAttrString(observer.get(), kCount));
  Ref found;
  if (stopped && count && !figures.spoiled)
    found = Ref::steal(PyTuple_Pack(2, count.get(), tags.get()));
  PyErr_Clear();
  return found;
}

void EntryRun::begin() {
  before_ = Ref::steal(PyObject_GetAttrString(figures_.observer, kCount));
  PyErr_Clear();
}

void EntryRun::end() {
  if (figures_.observer == nullptr) return;
  ErrorGuard error;
  if (PyObject_SetAttrString(figures_.observer, kCount, before_.get()) < 0) PyErr_Clear();
}

void EntryRun::note(PyObject* tag) {
  if (PyList_Append(figures_.tags, tag) < 0) PyErr_Clear();
}

}  // namespace magpy
