"""Sizes and numbers that vary from call to call, followed as symbols.

Owns the symbols, the conditions that a run put on them, what operations make of them (propagate,
fake_ops), what is computed with numbers (arithmetic), sizes that follow from data, and the choice
of what to follow in the next capture (speculation).  Called by the recorder, by the guards'
analysis and by magpy/runtime.
"""
