"""How the session is connected with the interpreter's part (magpy/capture/native.py)."""

import types

from magpy.capture import native


def test_code_is_instrumented_when_its_counters_cannot_be_told(monkeypatch):
    def program(x):
        return len(x)

    def broken(code):
        raise TypeError("the program replaced what dis needs")

    monkeypatch.setattr(native, "counters", broken)
    twin = native._instrument(program.__code__)
    assert isinstance(twin, types.CodeType)
    assert twin is not program.__code__
