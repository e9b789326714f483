"""The reference graph: where each outside object came from, and what must hold to reuse an entry.

Owns the kinds of reads (edges), the walk over a capture's log that lowers them (graph) to a guard
(program, checks), what else a capture's guard checks (analysis), their words (names, words), and
the picture (draw).  Does not own the log (magpy/capture) nor how a check is run
(csrc/interp/guards.cpp).  Called by magpy/runtime and by magpy/explaining.py.
"""
