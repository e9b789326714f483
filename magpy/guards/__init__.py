"""The reference graph: where each outside object came from, and what must hold to reuse an entry.

Owns the analysis of a capture's log into checks (analysis), their words (names, words) and its
picture (draw).  Does not own the log (magpy/capture) nor how a check is run
(csrc/interp/guards.cpp).  Called by magpy/runtime and by magpy/explaining.py.
"""
