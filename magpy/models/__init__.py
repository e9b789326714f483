"""What functions that are not looked into do: tables, a row for a function or an operation.

Owns what C functions of Python, numpy and torch read, write, draw and raise.  Does not own what a
watched run does about it (magpy/capture/python).  Called by the capture and by the passes.
"""
