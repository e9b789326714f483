"""What a run was: its operations in order, and how its result is made again.

Owns the data types: operations and values (ops), arguments as trees, recipes of results, torch's
modes, which variables share memory (aliasing), the capture as a whole.  Does not own who fills them
in (magpy/capture) nor what becomes of them (magpy/guards, magpy/replay).
"""
