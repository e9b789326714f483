"""The program's objects, looked at without running code of theirs.

Owns what a type is (types), plain values, contents, hashing, the state of C objects (c_state), the
memory of buffers, snapshots, looks at tensors of which no hook hears (quiet), and the hooks of
saved tensors (saved_tensors).  Imports no other room.  Called by all of them.
"""
