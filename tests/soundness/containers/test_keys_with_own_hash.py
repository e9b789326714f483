"""Keys of the program's own classes, whose `__hash__` and `__eq__` run as in eager."""

from __future__ import annotations

import collections
import dataclasses
import enum
import operator
import pathlib

import pytest
import torch

import magpy
from magpy.instrument.key_methods import shows
from magpy.objects import hashing


class World:
    """A dict and a set of keys that note every question, of which many have one hash."""

    def __init__(self, values=5):
        log = self.log = []

        class Key:
            def __init__(self, v):
                self.v = v

            def __eq__(self, other):
                log.append((self.v, other.v))
                return self.v == other.v

            def __hash__(self):
                log.append(self.v)
                return self.v % 2

            def __repr__(self):
                return f"Key({self.v})"

        self.Key = Key
        self.made = [Key(i) for i in range(values)]
        self.table = {k: k.v for k in self.made}
        self.group = set(self.made)
        del log[:]

    def seen(self):
        said = list(self.log)
        state = (
            list(self.table.items()),
            sorted(k.v for k in self.group),
        )
        text = repr((state, said))
        return text


def _reads(w, x, n):
    return x * w.table[w.Key(n)]


def _reads_its_own(w, x, n):
    return x * w.table[w.made[n]]


def _asks(w, x, n):
    return x + (w.Key(n) in w.table) + (w.Key(n) in w.group)


def _counts(w, x, n):
    return x * w.table[w.Key(n)] + len(w.log)


def _walks(w, x, n):
    return x * sum(w.table.values()) + len(w.group)


def _stores(w, x, n):
    w.table[w.Key(n)] = n
    return x * len(w.table)


def _stores_its_own(w, x, n):
    w.table[w.made[n]] = n * 2
    return x * len(w.table)


def _deletes(w, x, n):
    w.table.pop(w.Key(n), None)
    return x * len(w.table)


def _adds(w, x, n):
    w.group.add(w.Key(n + 3))
    return x * len(w.group)


def _joins(w, x, n):
    w.group |= {w.Key(n)}
    w.table.update({w.Key(n): 7})
    return x * len(w.group)


PROGRAMS = {
    f.__name__: f
    for f in (
        *(_reads, _reads_its_own, _asks, _counts, _walks, _stores, _stores_its_own, _deletes),
        *(_adds, _joins),
    )
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_keys_are_asked_as_in_eager(name):
    program = PROGRAMS[name]
    outcomes = []
    for compiled in (False, True):
        w = World()
        call = lambda x, n, w=w: program(w, x, n)  # noqa: E731 - a function of each world
        f = magpy.compile(call, backend="eager") if compiled else call
        outcome = []
        for n in (2, 3, 4, 2, 2, 3, 4, 0):
            outcome.append((f(torch.ones(1), n).item(), w.seen()))
        w.table[w.Key(9)] = 9
        w.group.discard(w.made[1])
        del w.log[:]
        for n in (2, 3):
            outcome.append((f(torch.ones(1), n).item(), w.seen()))
        outcomes.append(outcome)
    assert outcomes[1] == outcomes[0]


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


class Even:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return isinstance(other, Even) and (self.v, 1) == (other.v, 1)

    def __hash__(self):
        return hash((self.v % 2, "even"))


@pytest.mark.parametrize("cls", [lambda v: Point(v, 1), Even], ids=["dataclass", "plain"])
def test_changes_under_keys_that_only_compute_are_refused(cls):
    def make():
        table = {cls(i): i for i in range(4)}
        group = set(table)

        def f(x, n):
            table[cls(n)] = table.get(cls(n), 0) + 1
            group.add(cls(n))
            return x * len(table) + len(group)

        return f, table, group

    (eager, wanted, members), (call, got, others) = make(), make()
    f = magpy.compile(call, backend="eager")
    for n in (1, 1, 1, 7, 7, 8, 1, 7):
        assert f(torch.ones(1), n).item() == eager(torch.ones(1), n).item()
        assert list(got.items()) == list(wanted.items())
        assert others == members
    assert any("may do more than compute" in reason for reason in magpy.stats(f).reasons)


def test_a_key_that_does_more_is_named():
    w = World()
    f = magpy.compile(lambda x: _stores(w, x, 7), backend="eager")
    f(torch.ones(1))
    (reason,) = magpy.stats(f).reasons
    assert "whose key is a Key, and its __hash__ may do more than compute" in reason


SEARCHES = {
    "item": "d['x']",
    "default": "d.get('x', 0)",
    "contains": "'x' in d",
    "setdefault": "d.setdefault('x', 9)",
    "store": "d.__setitem__('x', n)",
    "statement": "exec_store(d, n)",
    "update": "d.update(x=n)",
    "update with a dict": "d.update({'x': n})",
    "pop": "d.pop('x', None)",
    "two": "(d['x'], d['x'], 'x' in d)",
    "after another": "(d.get('y'), d['x'])",
    "after a store": "(d.__setitem__(other, 1), d.get('x'))",
    "method": "type(d).__getitem__(d, 'x')",
    "getter": "operator.itemgetter('x')(d)",
}
TABLES = {
    "dict": "{key: 1, 'y': 2}",
    "defaultdict": "collections.defaultdict(lambda: 5, {key: 1, 'y': 2})",
    "Counter": "collections.Counter({key: 1, 'y': 2})",
    "OrderedDict": "collections.OrderedDict({key: 1, 'y': 2})",
    "subclass": "type('D', (dict,), {'__missing__': lambda s, k: 6})({key: 1, 'y': 2})",
}


def _exec_store(d, n):
    d["x"] = n


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("way", sorted(SEARCHES))
def test_a_key_that_is_there_is_asked_as_often_for_a_text(way, table):
    """A text is looked for, and a key of the program's own that is there says that it is equal."""
    outcomes = []
    for compiled in (False, True):
        log = []

        class Key:
            def __eq__(self, other, log=log):
                log.append(other)
                return other == "x"

            def __hash__(self):
                return hash("x")

        key, other = Key(), Key()
        names = {"key": key, "other": other, "operator": operator, "collections": collections}
        names["exec_store"] = _exec_store
        d = names["d"] = eval(TABLES[table], names)
        del log[:]
        f = eval(f"lambda x, n: (x + 1, {SEARCHES[way]})", names)
        f = magpy.compile(f, backend="eager") if compiled else f
        seen = []
        for n in (3, 3, 3, 4):
            y, found = f(torch.ones(1), n)
            asked = ["other" if o is other else "key" if o is key else o for o in log]
            del log[:]
            seen.append((y.item(), found, asked, list(d.values())))
            del log[:]
        outcomes.append(seen)
    assert outcomes[1] == outcomes[0]


# ---------------------------------------------------------------- which methods are known


class Kind(enum.Enum):
    FIRST = 1


def test_what_shows_and_what_does_not():
    for shown in (Point(1, 2), Even(3)):
        assert shows(shown) == shows((1, shown)) == "__hash__"
    for quiet in (1, "a", (1, "a"), object(), Kind.FIRST, pathlib.Path("a"), torch.ones(1)):
        assert shows(quiet) is None


def test_what_hashes_quietly():
    class Plain:
        pass

    for quiet in (1, "a", None, (1, ("b", 2.0)), Plain(), len, int):
        assert hashing.hashes_quietly(quiet)
    for other in (Point(1, 2), (1, Even(2)), frozenset((1,)), torch.ones(1)):
        assert not hashing.hashes_quietly(other)
