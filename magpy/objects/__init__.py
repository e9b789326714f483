"""The program's objects, looked at without running code of theirs.

Owns what a type is (types), plain values, contents, hashing, the state of C objects (c_state), the
memory of buffers, snapshots, and looks at tensors of which no hook hears (quiet).  Imports no other
room.  Called by all of them.
"""
