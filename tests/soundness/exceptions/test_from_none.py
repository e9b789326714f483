"""`raise ... from None` hides what was handled then, in every call; none of these is captured."""

import pytest
import torch

import magpy


def _raises(x):
    raise ValueError(str(x.dim())) from None


def _keeps(x):
    try:
        raise ValueError(str(x.dim())) from None
    except ValueError as error:
        return error


@pytest.mark.parametrize("program", [_raises, _keeps])
def test_what_was_handled_is_hidden(program):
    def outcome(f):
        try:
            error = f(torch.ones(2))
        except ValueError as raised:
            error = raised
        return error.__suppress_context__, error.__cause__, error.__context__

    f = magpy.compile(program, backend="eager")
    for _ in range(3):
        assert outcome(f) == outcome(program) == (True, None, None)
    assert "raised" in magpy.stats(f).reasons[0]
