"""Mock code: how the result and the effects of a captured call are redone.

Owns the description of values to build (spec), the cutting of the steps into graphs (segments), the
function's text (codegen) and what that text calls (support).  Does not own the capture
(magpy/capture) nor when its graphs are compiled (magpy/backends).  Called by
magpy/runtime/entry.py.
"""
