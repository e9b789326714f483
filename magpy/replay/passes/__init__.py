"""Passes over the recorded operations, each a function of its own.

Owns what is taken out, joined, moved or refused between the capture and the generated code.  Called
by magpy/runtime/entry.py and magpy/replay/segments.py.
"""
