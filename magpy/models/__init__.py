"""Tables of what callables do that no probe can look into: one row for each callable or operation.

Owns facts alone.  Does not own what is made of them while a run is watched (magpy/capture).
"""
