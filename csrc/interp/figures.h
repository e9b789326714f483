// What is counted of the calls of compiled callables, for `magpy.stats`.
//
// Owns: the figures of each thread: the tally of its calls, and the sample: what is known of the
// one call of which every tensor operation is counted.  Does not own: which calls are sampled
// (dispatch), the counting of operators (csrc/tensor/observer.cpp), what becomes of a sample
// (magpy/runtime/figures.py).
#pragma once

#include "ref.h"

namespace magpy {

struct Figures {
  // What the compiled callables of the thread did so far: calls that an entry served, calls that
  // none did, entries that were added.
  long long served, missed, added;
  // Of the call that is sampled: what counts operators (none: no call is), the tags of the entries
  // that served, whether part of it was watched.
  PyObject *observer, *tags;
  bool spoiled;
};

// Those of this thread.  Not on the C stack: a program that switches stacks (greenlets) may leave a
// call in the middle.
Figures& thread_figures();

// Begins to sample a call; false if one is being sampled on this thread, or operators cannot be
// counted.
bool begin_sample();

// What was found, as (operators that ran outside of entries, the tags of the entries that served);
// none if the call is of no use: part of it was watched.
Ref end_sample();

// While it lives an entry runs: it is known what it does, so no operator is counted.
class EntryRun {
 public:
  explicit EntryRun(Figures& figures) : figures_(figures) {
    if (figures_.observer != nullptr) begin();
  }
  ~EntryRun() {
    if (before_) end();
  }
  EntryRun(const EntryRun&) = delete;
  EntryRun& operator=(const EntryRun&) = delete;
  // The entry has served the call.
  void served(PyObject* tag) {
    figures_.served++;
    if (figures_.observer != nullptr) note(tag);
  }

 private:
  void begin();
  void end();
  void note(PyObject* tag);
  Figures& figures_;
  Ref before_;
};

}  // namespace magpy
