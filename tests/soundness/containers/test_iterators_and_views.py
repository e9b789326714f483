"""C code that goes over an iterator or a view, and looks into what that gives.

Owns: programs in which nothing but C code reads what the elements of an outside container hold, by
way of something that the call makes: a view, an iterator, a namespace, pairs for a dict, a list of
places.  Does not own containers that are given to C code themselves
(containers/test_lists_and_deques.py).
"""

import collections
import copy
import functools
import heapq
import itertools
import operator
import types

import numpy as np
import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt

NAMES = {
    m.__name__: m for m in (collections, copy, functools, heapq, itertools, operator, torch, types)
}
NAMES["np"] = np
NAMES["attempt"] = attempt
LISTS = "h.n = {'a': [2, 1], 'b': [1, 5]}"
PAIRS = "h.m = [['a', 1], ['b', 2]]"
DICT = "h.d = {'a': 1}"
PLACES = "h.l = [0, 1, 2]"
BYTES = "h.b = bytearray(b'ab')"
LONGER, LESS = "h.n['a'].append(7)", "h.n['a'][0] = 0"
VIEWS = (
    *("h.n.values()", "iter(h.n.values())", "reversed(h.n.values())", "filter(None, h.n.values())"),
    *("itertools.islice(h.n.values(), 2)", "itertools.chain(h.n.values(), [[9]])"),
    *("{0: h.n['a'], 1: h.n['b']}.values()", "iter([h.n['a']])", "map(lambda v: v, h.n.values())"),
)
CASES = [
    *((LISTS, f"sum({view}, [])", LONGER) for view in VIEWS),
    *((LISTS, f"list(itertools.chain.from_iterable({view}))", LONGER) for view in VIEWS),
    *((LISTS, f"max({view})", LESS) for view in VIEWS),
    (LISTS, "sorted(h.n.values())[0] is h.n['b']", LESS),
    (LISTS, "heapq.nsmallest(1, h.n.values())[0] is h.n['b']", LESS),
    (LISTS, "h.n.items() == {'a': [2, 1], 'b': [1, 5]}.items()", LONGER),
    (LISTS, "[2, 1] in iter(h.n.values())", LONGER),
    (LISTS, "operator.contains(h.n.values(), [2, 1])", LONGER),
    (LISTS, "operator.countOf(iter(h.n.values()), [2, 1])", LONGER),
    (LISTS, "repr(h.n.values())", LONGER),
    (LISTS, "f'{h.n.items()}'", LONGER),
    (LISTS, "list(itertools.starmap(pow, h.n.values()))", LESS),
    (LISTS, "list(itertools.accumulate(h.n.values()))", LONGER),
    (LISTS, "dict(itertools.islice(h.n.values(), 1))", LESS),
    *((PAIRS, way, "h.m[0][1] = 5") for way in ("dict(h.m)", "dict(iter(h.m))", "dict(h.m, z=1)")),
    (PAIRS, "functools.partial(dict, h.m)()", "h.m[0][1] = 5"),
    (PAIRS, "(lambda d: (d.update(h.m), d))({})", "h.m[0][1] = 5"),
    ("h.q = collections.deque([['a', 2]])", "dict(h.q)", "h.q[0][1] = 5"),
    (DICT, "str({1: h.d}.values())", "h.d['a'] = 2"),
    (
        DICT,
        "(lambda q: (setattr(q, 'a', h.d), str(q)))(types.SimpleNamespace())[1]",
        "h.d['a'] = 2",
    ),
    (PLACES, "np.arange(9)[h.l].tolist()", "h.l[1] = 5"),
    (PLACES, "(lambda a: (operator.setitem(a, h.l, 1), a.tolist()))(np.zeros(6))", "h.l[1] = 5"),
    (PLACES, "torch.Size(h.l)", "h.l[1] = 5; h.l.append(3)"),
    (BYTES, "b''.join({1: h.b}.values())", "h.b[0] = 120"),
    (BYTES, "b''.join(iter([h.b]))", "h.b[0] = 120"),
    ("h.a = np.zeros(2)", "sum({1: h.a}.values()).tolist()", "h.a[0] = 9"),
    # What a function of Python gives to C code for an element is looked into.
    *(
        (LISTS, f"{way}[0]", "h.n['a'][0] = 0")
        for way in (
            "sorted(h.n.items(), key=lambda entry: entry[1])[0]",
            "min(h.n.items(), key=lambda entry: entry[1])",
            "sorted(h.n, key=h.n.get)",
            "(lambda l: (l.sort(key=lambda e: e[1]), l))([*h.n.items()])[1][0]",
            "[[*g][0] for _, g in itertools.groupby(h.n.values(), key=lambda v: v[:1])]",
            "heapq.nsmallest(1, h.n.items(), key=lambda entry: entry[1])[0]",
            "functools.reduce(lambda a, b: a + b, h.n.values())",
            "[*map(lambda v: v, h.n.values())][0]",
            "[*filter(lambda v: v[0], h.n.values())][0]",
        )
    ),
    (LISTS, "[len(v) for v in filter(None, h.n.values())]", "h.n['a'].clear()"),
    (LISTS, "max(h.n['a'], h.n['b']) is h.n['a']", LESS),
    (LISTS, "sorted(zip([0, 0], h.n.values()))[0]", LESS),
    (LISTS, "sorted(h.n.items(), key=operator.itemgetter(1))[0][0]", LESS),
    (LISTS, "sorted([*h.n.items()])[0][1]", LESS),
    ("h.n = {1: [1], 2.5: [0]}", "sorted(h.n.items())[0][1]", "h.n[0] = [5]"),
    ("h.n = {(1, 2): [1], (0, 3): [0]}", "sorted(h.n.items())[0][1]", "h.n[0, 0] = [5]"),
    # Chains of iterators over one another.
    (LISTS, "[*itertools.chain(*zip(*h.n.values()))]", "h.n['a'][0] = 0"),
    (LISTS, "[sorted(v) for v in itertools.tee(iter(h.n.values()))[1]]", "h.n['a'][0] = 0"),
    (LISTS, "max(enumerate(zip(h.n.values(), [3, 4])))", "h.n['b'][0] = 0"),
    # What C code takes over by name.
    *(
        ("def g(a: int): 'g'\nh.f = g", way, change)
        for way, change in (
            ("property(h.f).__doc__", "h.f.__doc__ = 'other'"),
            ("staticmethod(h.f).__name__", "h.f.__name__ = 'other'"),
            ("staticmethod(h.f).__doc__", "h.f.__doc__ = 'other'"),
            ("classmethod(h.f).__qualname__", "h.f.__qualname__ = 'other'"),
            ("classmethod(h.f).__annotations__['a']", "h.f.__annotations__['a'] = str"),
            ("getattr(staticmethod(h.f), 'more', 0)", "h.f.more = 1"),
        )
    ),
    (DICT, "sorted(set(vars(type('A', (), h.d))))", "h.d['b'] = 2"),
    (DICT, "type('A', (), h.d).a", "h.d['a'] = 2"),
    ("h.d = {'__slots__': ['a']}", "hasattr(type('A', (), h.d), 'b')", "h.d['__slots__'] += 'b'"),
    # An iterator's place.
    *(
        (f"h.i = {made}", way, "next(h.i, 0)")
        for made in ("itertools.count()", "iter([1, 2, 3, 4, 5])", "itertools.cycle([1, 2, 3])")
        for way in ("next(copy.copy(h.i))", "h.i.__reduce__()[1:]")
    ),
    # What the `__eq__` of a key that is there reads.
    *(
        (
            "class Key:\n  def __init__(s, v): s.v = v\n  def __eq__(s, o): return s.v == o.v\n"
            "  def __hash__(s): return 1\n  def __repr__(s): return 'key'\n"
            f"h.a = Key(1); h.d = {made}({{{key}: 5}})",
            f"[{way} for D in [h.d]] if True else 0",
            "h.a.v = 3",
        )
        for made in (
            "dict",
            "collections.OrderedDict",
            "collections.Counter",
            "collections.ChainMap",
        )
        for key, way in (
            ("h.a", "attempt(lambda: D[Key(1)])"),
            ("(h.a, 1)", "attempt(lambda: D[Key(1), 1])"),
            ("h.a", "D.get(Key(1))"),
            ("h.a", "Key(1) in D"),
        )
    ),
    *(
        (
            "class Key:\n  def __init__(s, v): s.v = v\n  def __eq__(s, o): return s.v == o\n"
            "  def __hash__(s): return hash('x')\nh.a = Key('x'); h.d = {h.a: 1}",
            f"attempt(lambda: {way})",
            "h.a.v = 'y'",
        )
        for way in (
            "h.d['x'] if 'x' in h.d else 0",
            "'x' in h.d",
            "h.d.get('x')",
            "h.d.copy().setdefault('x', 9)",
            "[v for v in [h.d.get('y', 2)]]",
        )
    ),
    # What exceptions were made with.
    *(
        ("h.e = ExceptionGroup('m', [ValueError(1)])", way, "h.e.exceptions[0].args = (2,)")
        for way in ("repr(h.e)", "repr(h.e.subgroup(ValueError))", "str([h.e])")
    ),
    ("h.e = ValueError(KeyError(1))", "repr(h.e)", "h.e.args[0].args = (2,)"),
]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize(("setup", "way", "change"), CASES)
def test_what_elements_hold_is_compared(setup, way, change):
    def world(wrap):
        space = {**NAMES, "h": types.SimpleNamespace()}
        exec(f"{setup}\ndef f(x):\n    return x * 2, {way}", space)
        f, seen = wrap(space["f"]), []
        for i in range(6):
            if i >= 3:
                exec(change, space)
            seen.append(f(torch.ones(1)))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend="eager")), world(lambda f: f))


def test_views_and_iterators_that_are_passed_on_read_no_elements():
    held = {"a": [1], "b": [2]}

    def f(x):
        n = len(list(held.values())) + len(dict(held.items())) + len(dict(zip("ab", held.values())))
        for _, _ in held.items():
            n += 1
        return x * (n + len(list(enumerate(held.values()))))

    compiled = magpy.compile(f, backend="eager")
    for _ in range(4):
        assert compiled(torch.ones(1)).item() == f(torch.ones(1)).item()
        held["a"].append(3)
    assert magpy.stats(compiled).hits == 3


def test_what_a_function_of_python_judges_need_not_be_the_same():
    held = {"a": [1], "b": [2]}

    def f(x):
        by_key = sorted(held.items())
        by_length = sorted(held.values(), key=lambda v: 0)
        both = [*map(lambda v: v, by_length), *filter(lambda v: v is not None, held.values())]
        return x * len(by_key) * len(both) * len(max(held.items()))

    compiled = magpy.compile(f, backend="eager")
    for _ in range(4):
        assert compiled(torch.ones(1)).item() == f(torch.ones(1)).item()
        held["a"][0] += 1
    assert magpy.stats(compiled).hits == 3
