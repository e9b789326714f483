"""The runtime: what happens in a call of a compiled callable, other than the hit.

Owns captures on a miss and the entries made of them (compiled, entry), compiled modules (module,
pickling) and the places where tests inject faults (faults).  Does not own the search for an entry
that fits, which is native (csrc/interp/dispatch.cpp), nor what users pass in (magpy/api.py), by
which it is called.
"""
