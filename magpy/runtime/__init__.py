"""The runtime: what happens in a call of a compiled callable, other than the hit.

Owns captures on a miss and the entries made of them (compiled, entry), why calls missed and what is
done where they do again and again (misses, repeated_misses), what `magpy.stats` and a page tell
(figures, report, page), compilation in the background and by measurement (background, auto), what
an entry raises (exceptions), callables that run in part (driver), checkpointed blocks (blocks,
checkpoints) and compiled modules (module, pickling).  Does not own the search for an entry that
fits, which is native (csrc/interp/dispatch.cpp), nor what users pass in (magpy/api.py), by which it
is called.
"""
