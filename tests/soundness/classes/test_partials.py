"""`functools.partial`: what C code takes over of one; and objects that tell if they have a dict."""

import functools

import pytest

import magpy
from tests.comparison import assert_same


def base(*given, n=1, m=2):
    return given, n, m


class Kind(functools.partial):
    pass


class Held:
    part = None


def set_state(part):
    made = functools.partial(base)
    made.__setstate__((base, (), part.keywords, None))
    return made


WAYS = {
    "taken_over": "functools.partial(h.part, m=k)",
    "taken_over_as_it_is": "functools.partial(h.part)",
    "by_parts": "functools.partial(h.part.func, *h.part.args, **h.part.keywords)",
    "copied": "copy.copy(h.part)",
    "copied_deeply": "copy.deepcopy(h.part)",
    "called": "h.part(k)",
    "called_by_c": "functools.reduce(h.part, [1, 2])",
    "mapped": "list(map(h.part, [1, 2]))",
    "shown": "repr(h.part).split('>')[1]",
    "keywords": "dict(h.part.keywords)",
    "keywords_and_more": "h.part.keywords | {'m': k}",
    "names": "sorted(h.part.keywords)",
    "reduced": "h.part.__reduce__()[2][2]",
    "of_a_method": "functools.partialmethod(h.part.func, **h.part.keywords).keywords",
    "given_a_state": "set_state(h.part)",
    "compared": "h.part == h.part, h.part.keywords == {'n': 3}",
    "wrapper": "functools.update_wrapper(functools.partial(h.part), h.part)",
    "of_another_class": "Kind(h.part)",
    "attributes": "vars(h.part)",
}


def described(v):
    if not isinstance(v, functools.partial):
        return v, list(v) if isinstance(v, dict) else None
    own = {name: described(x) for name, x in vars(v).items()}
    return type(v), described(v.func), v.args, v.keywords, list(v.keywords), own


@pytest.mark.parametrize("way", WAYS)
def test_what_a_partial_holds_is_compared(way):
    space = dict(globals())
    exec(f"import copy\ndef f(h, k):\n    return {WAYS[way]}", space)

    def world(f):
        h, seen = Held(), []
        held = [{"n": 3}, {"n": 3}, {"n": 2}, {"n": 2, "m": 5}, {"m": 5, "n": 2}, {}, {"n": 1}]
        for i, words in enumerate(held * 2):
            h.part = functools.partial(base, *range(i // 7), **words)
            if i % 5 == 4:
                h.part.note = 4
            seen.append((described(f(h, 1)), described(h.part)))
        for i in range(4):
            h.part.keywords["n"] = i
            seen.append((described(f(h, 1)), described(h.part)))
        return seen

    compiled = magpy.compile(space["f"], backend="eager")
    assert_same(world(compiled), world(space["f"]))
    assert not magpy.stats(compiled).reasons


def test_guards_give_no_dict_to_a_partial():
    look = magpy.compile(lambda part: getattr(part, "note", None), backend="eager")
    look(functools.partial(base))
    part = functools.partial(base)
    assert look(part) is None
    assert magpy.stats(look).hits == 1
    assert functools.partial(part, 1).func is base


def test_an_exception_that_is_kept_gets_no_dict():
    f = magpy.compile(lambda n: ValueError(n), backend="eager")
    assert [f(1).__reduce__() for _ in range(3)] == [(ValueError, (1,))] * 3
    assert magpy.stats(f).hits == 2


@pytest.mark.parametrize("name", ["note", "func", "__reduce__", "keywords"])
def test_a_call_that_is_watched_gives_no_dict_to_what_it_reads(name):
    part, error = functools.partial(base), ValueError(1)

    def f(part, error):
        return getattr(part, name, None) is None, hasattr(error, name), repr(error)

    look = magpy.compile(f, backend="eager")
    for _ in range(3):
        assert look(part, error) == (name == "note", name == "__reduce__", "ValueError(1)")
    assert functools.partial(part, 1).func is base
    assert error.__reduce__() == (ValueError, (1,))
    assert magpy.stats(look).hits == 2
    part.note = error.note = error.func = 1
    assert look(part, error) == f(part, error)


class Slotted:
    __slots__ = ("__own", "v")

    def __init__(self, v):
        self.v = self.__own = v


class More(Slotted):
    __slots__ = ("v",)


def test_an_object_that_is_kept_leaves_nothing_in_its_class():
    f = magpy.compile(lambda n: (Slotted(n), More([n])), backend="eager")
    for i in (1, 1, 1):
        slotted, more = f(i)
        assert (slotted.v, slotted._Slotted__own) == (1, 1)
        assert (more.v, more._Slotted__own) == ([1], [1])
        assert more.v is more._Slotted__own
    assert magpy.stats(f).hits == 2
    assert not {"__slotnames__"} & (vars(Slotted).keys() | vars(More).keys())
