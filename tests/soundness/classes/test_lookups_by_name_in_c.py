"""What C code asks objects for by plain names: `keys` of a mapping, what a methodcaller names.

Owns: programs in which such an attribute is put into a class or an object after the capture. Does
not own the special methods of classes (classes/test_type_queries.py).
"""

from __future__ import annotations

import collections
import collections.abc
import operator

import pytest

import magpy


class Mapping(collections.abc.Mapping):
    """A mapping in Python."""

    def __init__(self):
        self.v = {"a": 1, "b": 2}

    def __getitem__(self, key):
        return self.v[key]

    def __iter__(self):
        return iter(self.v)

    def __len__(self):
        return len(self.v)


class Dict(dict):
    """A dict whose content C code takes as it is."""

    def __init__(self):
        super().__init__(a=1, b=2)


class Iterating(Dict):
    """A dict that C code asks for its keys."""

    def __iter__(self):
        return dict.__iter__(self)


def _matched(m):
    match m:
        case {"a": 1, **rest}:
            return rest
        case {"b": b}:
            return b
    return None


def _updated(m):
    found = {}
    found.update(m)
    return found


def _ored(m):
    found = {}
    found |= m
    return found


USES = {
    "display": lambda m: {**m},
    "call": lambda m: (lambda **named: named)(**m),
    "dict": dict,
    "update": _updated,
    "or": _ored,
    "pattern": _matched,
    "ordered": collections.OrderedDict,
    "counter": collections.Counter,
    "chain": lambda m: dict(collections.ChainMap({}, m)),
}


def _keys_of_the_class(m):
    type(m).keys = lambda self: ["a"]


def _keys_of_the_object(m):
    m.keys = lambda: ["b"]


def _items_of_the_class(m):
    type(m).items = lambda self: [("a", 7)]


def _get_of_the_class(m):
    type(m).get = lambda self, key, default=None: 7 if key == "a" else default


def _get_of_the_object(m):
    m.get = lambda key, default=None: default


def _outcome(f):
    try:
        return f()
    except Exception as e:
        return repr(e)


def _calls(use, of, change, wrap):
    made = type("Made", (of,), {})()
    target = wrap(lambda: use(made))
    found = []
    for i in range(4):
        if i == 2:
            change(made)
        found.append(_outcome(target))
    return found, target


CHANGES = [
    *(_keys_of_the_class, _keys_of_the_object, _items_of_the_class),
    *(_get_of_the_class, _get_of_the_object),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("of", [Mapping, Dict, Iterating])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_method_that_is_put_there_later_is_asked_as_in_eager(use, of, change):
    expected, _ = _calls(use, of, change, lambda f: f)
    found, target = _calls(use, of, change, lambda f: magpy.compile(f, backend="eager"))
    assert found == expected
    refused = use is _matched  # a pattern of keys
    assert magpy.stats(target).reasons if refused else magpy.stats(target).hits


class Counting:
    """An object with a method and an attribute."""

    n = 1

    def __init__(self):
        self.log = []

    def step(self, by=1, *, twice=False):
        self.log.append(by)
        return by * (2 if twice else 1)


def _another_method(o):
    type(o).step = lambda self, *args, **named: 7


def _another_method_of_the_object(o):
    o.step = lambda *args, **named: self_is_none


self_is_none = None

CALLERS = {
    "plain": operator.methodcaller("step"),
    "given": operator.methodcaller("step", 3, twice=True),
    "named": operator.methodcaller("step", twice=True),
}
WAYS = {
    "called": lambda caller, o: caller(o),
    "mapped": lambda caller, o: list(map(caller, [o, o])),
    "sorted": lambda caller, o: len(sorted([o], key=caller)),
}


@pytest.mark.parametrize("change", [_another_method, _another_method_of_the_object])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
def test_a_methodcaller_finds_the_method_that_is_there(caller, way, change):
    def calls(wrap):
        o = type("Made", (Counting,), {})()
        target = wrap(lambda: way(caller, o))
        found = []
        for i in range(5):
            if i == 3:
                change(o)
            found.append((_outcome(target), list(o.log)))
        return found, target

    expected, _ = calls(lambda f: f)
    found, target = calls(lambda f: magpy.compile(f, backend="eager"))
    assert found == expected
    assert "methodcaller" in magpy.stats(target).reasons[0]


def test_a_methodcaller_reads_a_class():
    made = type("Made", (Counting,), {})
    call = operator.methodcaller("step")
    f = magpy.compile(lambda: call(made), backend="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required"):
            f()
    made.step = classmethod(lambda cls: 5)
    assert f() == 5
    made.step = staticmethod(lambda: 6)
    assert f() == 6
