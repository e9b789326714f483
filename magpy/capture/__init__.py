"""Capture: one run of the program for real, watched, written down.

Owns the rewriting of code objects (instrument, opcodes), the verdicts on C functions (leaves), the
record of tensor operations (recorder, steps) and the run as a whole (session).  Does not own the
hook and the probes, which are native (csrc/interp), nor what is made of a capture (magpy/refgraph,
magpy/mock).  Called by magpy/runtime and by magpy/explaining.py.
"""
