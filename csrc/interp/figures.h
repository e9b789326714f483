// What is counted of the calls of compiled callables, for `magpy.stats`.
//
// Owns: the tally of each thread, and the sample: what is known of the one call of a thread of
// which every tensor operation is counted.  Does not own: which calls are sampled (dispatch), the
// counting of operators (csrc/tensor/observer.cpp), what becomes of a sample
// (magpy/runtime/figures.py).
#pragma once

#include "ref.h"

namespace magpy {

// What the compiled callables of this thread did so far: calls that an entry served, calls that
// none did, entries that were added.
struct Tally {
  long long served, missed, added;
};
extern thread_local Tally tls_tally;

// Begins to sample a call; false if one is being sampled on this thread, or operators cannot be
// counted.
bool begin_sample();

// What was found, as (operators that ran outside of entries, the tags of the entries that served);
// none if the call is of no use: part of it was watched.
Ref end_sample();

// The call that is sampled is watched, or an entry of it: it is not like other calls.
void spoil_sample();

// While it lives an entry runs: it is known what it does, so no operator is counted.
class EntryRun {
 public:
  EntryRun();
  ~EntryRun();
  EntryRun(const EntryRun&) = delete;
  EntryRun& operator=(const EntryRun&) = delete;
  // The entry has served the call.
  void served(PyObject* tag);

 private:
  Ref before_;
};

}  // namespace magpy
