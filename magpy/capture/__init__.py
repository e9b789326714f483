"""Capture: one run of the program for real, watched, written down.

Owns the run as a whole (session), why it is refused (refusals), what it leaves behind (end_state,
rebuild), the answers to what the probes ask (python/) and the record of tensor operations
(tensors/).  Does not own the hook and
the probes, which are native (csrc/interp), nor what is made of a capture (magpy/guards,
magpy/replay).  Called by magpy/runtime and by magpy/explaining.py.
"""
