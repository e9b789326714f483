"""Classes whose attributes are the items of a dict, by functions of C and of Python.

Owns settings kept in such objects (`class Settings(dict): __getattr__ = dict.__getitem__`), one
within the other, that are read and stored by compiled calls and changed by others.  Does not own
dicts as such (tests/soundness/external_state/test_state_of_every_kind.py), nor special methods of C
in general (tests/soundness/classes/test_callables_in_special_slots.py).
"""

from __future__ import annotations

import collections
import sys
import types

import pytest
import torch

import magpy
from tests.soundness.worlds import attempt, run


class ByItem(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class ByGet(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class WithSlots(dict):
    __slots__ = ()
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Ordered(collections.OrderedDict):
    __getattr__ = collections.OrderedDict.__getitem__


class ItsOwn(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class InPython(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


KINDS = [ByItem, ByGet, WithSlots, Ordered, ItsOwn, InPython]
LOOKS = {
    "rate": lambda s: s.rate,
    "inner.width": lambda s: s.inner.width,
    "inner.sizes": lambda s: s.inner.sizes[0],
    "inner.weight": lambda s: s.inner.weight * 2,
    "inner.deep.level": lambda s: s.inner.deep.level,
    "hasattr": lambda s: (hasattr(s, "rate"), getattr(s, "rate", 7)),
    "text": lambda s: f"{s.rate}",
    "branch": lambda s: 1 if s.rate > 2 else 0,
    "store": lambda s: setattr(s, "other", s.rate),
    "store inside": lambda s: setattr(s.inner, "other", s.inner.width),
    "store and read": lambda s: (setattr(s, "other", s.inner), s.other.width),
    "count": lambda s: setattr(s, "rate", s.rate + 1),
    "delete": lambda s: delattr(s.inner, "sizes") if "sizes" in s.inner else 0,
}
CHANGES = {
    "rate": lambda s: s.update(rate=5),
    "width": lambda s: s["inner"].update(width=7),
    "inner": lambda s: s.update(inner=settings(type(s), 9)),
    "sizes": lambda s: s["inner"].get("sizes", [0]).__setitem__(0, 8),
    "weight": lambda s: s["inner"]["weight"].add_(1),
    "other weight": lambda s: s["inner"].update(weight=torch.ones(1) * 4),
    "level": lambda s: s["inner"]["deep"].update(level=6),
    "width is gone": lambda s: s["inner"].pop("width"),
}


def extra(s):
    try:
        return s.extra
    except (AttributeError, KeyError) as e:
        return type(e).__name__


LOOKS["absent"] = extra
LOOKS["absent inside"] = lambda s: extra(s.inner)
CHANGES["extra"] = lambda s: s.update(extra=1)
CHANGES["extra inside"] = lambda s: s["inner"].update(extra=1)


def settings(cls, number):
    return cls(width=number, sizes=[number], weight=torch.ones(1) * number, deep=cls(level=number))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("cls", KINDS)
def test_settings_change(cls, look, change):
    for is_argument in (False, True):

        def changed(compile, is_argument=is_argument):
            s = cls(rate=1, inner=settings(cls, 2))
            f = compile(lambda t, *a: (t * 1, LOOKS[look](a[0] if a else s)))
            for i in range(5):
                if i == 3:
                    CHANGES[change](s)
                yield attempt(f, torch.ones(2), *([s] if is_argument else [])), sorted(s)

        run(changed, None)


def test_a_function_of_c_that_nobody_knows_is_refused():
    class Items(list):
        __getattr__ = list.count

    items = Items(["a", "b"])
    f = magpy.compile(lambda t: t * items.a, backend="eager")
    assert f(torch.ones(1)).item() == 1
    items[1] = "a"
    assert f(torch.ones(1)).item() == 2
    assert "nobody sees what it reads" in str(magpy.stats(f).reasons)


@pytest.mark.parametrize("hook", ["__getitem__", "get"])
def test_the_hook_of_a_module_is_a_method_of_a_dict(hook):
    registry = {"rate": 1}
    module = types.ModuleType("with_a_hook")
    module.__getattr__ = getattr(registry, hook)
    sys.modules["with_a_hook"] = module
    try:
        f = magpy.compile(lambda t: t * module.rate, backend="eager")
        for rate in (1, 1, 5, 5):
            registry["rate"] = rate
            assert f(torch.ones(1)).item() == rate
    finally:
        del sys.modules["with_a_hook"]


def test_a_callable_that_answers_with_other_errors_is_compiled_and_not_asked():
    asked = []

    class Strict:
        def __getattr__(self, name):
            asked.append(name)
            raise KeyError(name)

        def __call__(self, t):
            return t + 1

    for strict in (Strict(), type("D", (ByItem,), {"__call__": lambda self, t: t + 1})()):
        f = magpy.compile(strict, backend="eager")
        for _ in range(3):
            assert f(torch.ones(1)).item() == 2
        assert magpy.stats(f).hits == 2 and asked == []
