"""`dir` finds names in the classes of an object: its line is Python's."""

import inspect

import pytest
import torch
from torch import nn

import magpy


class Base:
    pass


class Own(Base):
    k = 1


ASKED = {
    "dir": lambda x, o: x * ("zz" in dir(o)),
    "dir of the class": lambda x, o: x * ("zz" in dir(type(o))),
    "method": lambda x, o: x * ("zz" in o.__dir__()),
    "members": lambda x, o: x * ("zz" in dict(inspect.getmembers(o))),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("changed", [Own, Base])
@pytest.mark.parametrize("given", [True, False])
def test_names_are_those_of_now(asked, changed, given):
    f, o = ASKED[asked], Own()
    c = magpy.compile(f if given else lambda x: f(x, o), backend="eager")
    more = (o,) if given else ()
    x = torch.ones(1)
    try:
        assert [c(x, *more).item() for _ in range(3)] == [0, 0, 0]
        changed.zz = 1
        assert [c(x, *more).item() for _ in range(3)] == [1, 1, 1]
        del changed.zz
        assert [c(x, *more).item() for _ in range(3)] == [0, 0, 0]
    finally:
        if "zz" in vars(changed):
            del changed.zz
    assert "dir" in str(magpy.stats(c).reasons)


def test_names_of_modules(monkeypatch):
    net = nn.Linear(1, 1)
    c = magpy.compile(lambda x: x * ("kq" in dir(net)), backend="eager")
    assert [c(torch.ones(1)).item() for _ in range(2)] == [0, 0]
    monkeypatch.setattr(nn.Module, "kq", 1, raising=False)
    assert c(torch.ones(1)).item() == 1
