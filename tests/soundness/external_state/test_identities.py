"""Which objects a call is given: whether one is another, and what follows from its identity."""

from __future__ import annotations

import collections
import contextvars
import copy
import itertools
import weakref

import pytest
import torch

import magpy


class Thing:
    def __init__(self, v=0):
        self.v = v


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Derived(Slotted):
    __slots__ = ("c",)


x = torch.ones(1)

# What makes an object, and how it shows that it was changed.
KINDS = {
    "list": (lambda: [1], lambda v: v.append(2)),
    "dict": (lambda: {"a": 1}, lambda v: v.update(b=2)),
    "object": (Thing, lambda v: setattr(v, "v", v.v + 1)),
    "tensor": (lambda: torch.ones(1), lambda v: v.add_(1)),
    "set": (lambda: {1}, lambda v: v.add(len(v) + 1)),
}


def _shown(v):
    return repr(vars(v) if isinstance(v, Thing) else v)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("program", ["asks", "changes"])
def test_two_arguments_and_one_that_is_known(kind, program):
    make, change = KINDS[kind]
    known = make()

    def asks(t, p, q):
        return t * 2, p is known, q is known, p is q

    def changes(t, p, q):
        change(p)
        return t * 2, _shown(q), _shown(known)

    forms = {
        "new": lambda: (make(), make()),
        "one": lambda: (lambda v: (v, v))(make()),
        "left": lambda: (known, make()),
        "right": lambda: (make(), known),
        "both": lambda: (known, known),
    }
    f = asks if program == "asks" else changes
    for order in itertools.permutations(forms, 3):
        c = magpy.compile(f, backend="eager")
        for name in (*order, *order):
            wanted = f(x, *forms[name]())[1:]
            if program == "changes":
                known = make()
            assert c(x, *forms[name]())[1:] == wanted, (order, name)
            known = make() if program == "changes" else known


def _through_argument(look):
    return lambda t, k: (t + 1, look(k))


def _through_attribute(look):
    return lambda t, k: (t + 1, look(k.v))


def _through_item(look):
    return lambda t, k: (t + 1, look(k[0]))


WAYS = {
    "argument": (_through_argument, lambda k: k),
    "attribute": (_through_attribute, Thing),
    "item": (_through_item, lambda k: [k]),
}
THINGS = [Thing(i) for i in range(4)]
TABLE = {THINGS[1]: 5, THINGS[3]: 6}
WEAK = weakref.WeakKeyDictionary(TABLE)
GROUP = weakref.WeakSet(TABLE)
ADDRESSES = {id(k) for k in TABLE}
HASHES = {hash(k) for k in TABLE}
LOOKS = {
    "get": lambda k: TABLE.get(k, 1),
    "in a dict": lambda k: k in TABLE,
    "item": lambda k: TABLE[k] if k in TABLE else 0,
    "in keys": lambda k: k in TABLE.keys(),
    "joined": lambda k: len({**TABLE, k: 2}),
    "in a set": lambda k: k in set(TABLE),
    "in a weak set": lambda k: k in GROUP,
    "in a weak dict": lambda k: WEAK.get(k, 7),
    "address": lambda k: id(k) in ADDRESSES,
    "hash": lambda k: hash(k) in HASHES,
    "in a list": lambda k: k in list(TABLE),
    "place": lambda k: list(TABLE).index(k) if k in TABLE else -1,
}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("look", sorted(LOOKS))
def test_an_object_is_looked_for(look, way):
    make, given = WAYS[way]
    f = make(LOOKS[look])
    c = magpy.compile(f, backend="eager")
    for i in (0, 1, 2, 3, 0, 1, 3, 2):
        assert c(x, given(THINGS[i]))[1] == f(x, given(THINGS[i]))[1], i


def test_a_table_of_what_was_computed_for_an_object():
    def make():
        table = {}

        def f(t, k):
            if k not in table:
                table[k] = t * 2
            return table[k]

        return f

    eager, c = make(), magpy.compile(make(), backend="eager")
    for i in (0, 1, 2, 0, 1, 2, 3, 0):
        t = torch.full((1,), float(i))
        assert c(t, THINGS[i]).item() == eager(t, THINGS[i]).item()


def test_torch_and_the_library_may_ask_for_addresses():
    """`copy.deepcopy` keeps what it has copied by its address: any object will do."""

    def f(t, k):
        return t * 2, copy.deepcopy(k).v

    c = magpy.compile(f, backend="eager")
    for i in range(4):
        assert c(x, Thing([1, 2]))[1] == [1, 2], i
    assert magpy.stats(c).hits >= 2  # the first copy fills a cache of the class


SLOTS = {
    "copy": lambda o: _slots(copy.copy(o)),
    "deepcopy": lambda o: _slots(copy.deepcopy(o)),
    "getstate": lambda o: o.__getstate__(),
    "reduce": lambda o: o.__reduce_ex__(2)[2],
}


def _slots(o):
    return [getattr(o, name, None) for name in ("a", "b", "c")]


@pytest.mark.parametrize("cls", [Slotted, Derived])
@pytest.mark.parametrize("look", sorted(SLOTS))
@pytest.mark.parametrize("way", sorted(WAYS))
def test_slots_that_c_code_reads(look, way, cls):
    def made(a, **more):
        o = cls(a)
        for name, v in more.items():
            setattr(o, name, v)
        return o

    make, given = WAYS[way]
    f = make(SLOTS[look])
    c = magpy.compile(f, backend="eager")
    for a, more in ((1, {}), (1, {}), (2, {}), (3, {}), (3, {"b": [1]}), (3, {"b": [2]}), (1, {})):
        if cls is Derived and a == 2:
            more = {"c": 4}
        wanted, got = (g(x, given(made(a, **more)))[1] for g in (f, c))
        assert got == wanted


FACTORIES = {
    "missing": lambda d: d["zz"],
    "stored": lambda d: (d["zz"], dict(d)),
    "copy": lambda d: d.copy().default_factory,
    "copied": lambda d: copy.copy(d).default_factory,
    "joined": lambda d: (d | d).default_factory,
    "there": lambda d: d["a"],
}


@pytest.mark.parametrize("look", sorted(FACTORIES))
@pytest.mark.parametrize("way", [*sorted(WAYS), "global"])
def test_what_a_defaultdict_makes(look, way):
    place = []
    if way == "global":
        f = lambda t, k: (t + 1, FACTORIES[look](place[0]))  # noqa: E731 - as the others
        given = place.append
    else:
        make, given = WAYS[way]
        f = make(FACTORIES[look])
    c = magpy.compile(f, backend="eager")
    for factory in (int, int, list, dict, float, None, list):
        outcomes = []
        for g in (f, c):
            del place[:]
            try:
                outcomes.append(g(x, given(collections.defaultdict(factory, a=1)))[1])
            except KeyError as error:
                outcomes.append(repr(error))
        assert repr(outcomes[1]) == repr(outcomes[0])


def test_the_same_defaultdict_is_given_another_factory():
    d = collections.defaultdict(int)

    def f(t):
        return t * 2, d["missing"], d.pop("missing")

    c = magpy.compile(f, backend="eager")
    for factory in (int, int, list, float, lambda: 7, int):
        d.default_factory = factory
        assert repr(c(x)[1:]) == repr(f(x)[1:])


def test_a_context_variable_is_put_back():
    v = contextvars.ContextVar("v", default=1)

    def resets(t):
        token = v.set(3)
        inside = v.get()
        v.reset(token)
        return t * 2, inside, v.get()

    def sets(t):
        v.set(v.get() + 1)
        v.set(3)
        return t * 2, v.get()

    for f in (resets, sets):
        c = magpy.compile(f, backend="eager")
        for i in (1, 2, 2, 3, 5, 3):
            v.set(i)
            wanted = f(x)[1:], v.get()
            v.set(i)
            assert (c(x)[1:], v.get()) == wanted


BIG, HALF = 10**6 + 7, 2.5
NUMBERS = [BIG, HALF, 3]
QUESTIONS = {
    "the least": lambda t: min([t.item(), HALF]) is HALF,
    "the most": lambda t: max(int(t), BIG) is BIG,
    "one of a list": lambda t: any(min([*NUMBERS, t.item() + 100]) is q for q in NUMBERS),
    "small": lambda t: int(t) is [1, 2, 3][int(t) - 1],
    "itself": lambda t: (lambda n: abs(n) is n)(int(t) + 1000),
    "as it was": lambda t: (lambda n: +n is n)(t.item()),
    "rounded": lambda t: (lambda n: round(n) is n)(int(t) + 1000),
    "another": lambda t: (lambda n: n * 1.0 is n)(t.item()),
    "text": lambda t: (lambda s: s.strip() is s)(str(t.item())),
    "text of one letter": lambda t: str(int(t)) is ["1", "2", "3"][int(t) - 1],
    "found": lambda t: [q is min(BIG, int(t) + 10**7) for q in NUMBERS],
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_which_number_it_is_is_what_eager_says(question):
    asks = QUESTIONS[question]
    for v in (1.0, 2.0, 3.0):
        c = magpy.compile(lambda t: asks(t), backend="eager")
        assert [c(torch.tensor(v)) for _ in range(3)] == [asks(torch.tensor(v))] * 3
