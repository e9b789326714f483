// Dicts and sets from outside that the program asks and changes at keys that are inputs.
//
// Owns: whether what is done with such a key is done again (magpy/capture/python/tables.py writes
// it down), and that a table is compared as other containers are where that cannot be.  Called by
// session_events.cpp, session_calls.cpp, and session_state.cpp wherever a container is looked into.
#pragma once

#include <Python.h>

namespace magpy {

struct Session;

// Whether what is done with a key of an object is done again: the key is an input, or the run has
// changed the table at such a key, and it has neither looked into the rest nor changed that.
bool asks_table(Session* s, PyObject* obj, PyObject* key);
// Whether how much there is in an object is asked again: it has been asked for such a key.
bool asks_length(Session* s, PyObject* obj);
// Whether what a table gives is a plain value.
bool gives_plain(PyObject* value);
// A table is changed at a key; of a set, `value` is True.
void store_in_table(Session* s, PyObject* table, PyObject* key, PyObject* value);
// Whether the run has changed this at a key that is an input.
bool is_table(Session* s, PyObject* obj);
// Whether torch is about to put a module's hook where its OrderedDict has nothing.  The hook comes
// last, so that its number, an input, counts for nothing else than not to be there, which every
// call asks.  Only torch's own code has such a dict: whoever else gets hold of it may look at keys.
bool puts_at_new_key(Session* s, PyObject* obj, PyObject* key);
// Whether the run has put something at this very key in that way.
bool is_new_key(Session* s, PyObject* obj, PyObject* key);
// Code gets hold of an object, if there is one: unless it is torch's code for hooks, the numbers of what is in it
// are what they are in this run.
void shown(Session* s, PyObject* obj);
// A container is looked into, or changed otherwise: from here on the keys at which the run has
// changed it are what they are.
void leave_table(Session* s, PyObject* obj);

}  // namespace magpy
