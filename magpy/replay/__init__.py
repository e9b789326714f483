"""Replay: how the result and the effects of a captured call are redone.

Owns the passes over the recorded operations (passes/), their cut into graphs (segments, fx_graphs),
the mock function's text (codegen, object_code, code_writer) and what that text calls (support).
Does not own the capture (magpy/capture) nor when its graphs are compiled (magpy/backends).  Called
by magpy/runtime/entry.py.
"""
