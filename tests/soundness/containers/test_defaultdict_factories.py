"""Callables of every kind as the `default_factory` of a defaultdict, which calls them itself.

Whichever C code looks the missing key up, the results are those of the eager world: recorded with
a guard, or run eagerly with a reason.
"""

from __future__ import annotations

import pytest

from tests.fuzz import worlds
from tests.soundness.classes.test_callables_in_special_slots import PRELUDE

FACTORIES = {
    "function": "function",
    "partial": "functools.partial(read, 'n')",
    "partial_of_c": "functools.partial(getattr, S, 'n')",
    "partial_that_stores": "functools.partial(setattr, S, 'n', 8)",
    "cache": "kept",
    "static_cache": "staticmethod(kept)",
    "bound": "S.get",
    "object": "S",
    "bound_c": "L.__len__",
    "bound_c_that_stores": "functools.partial(L.append, 1)",
    "made_of_c": "itertools.count(4).__next__",
    "iterator_of_c": "C.__next__",
    "getter": "functools.partial(operator.attrgetter('n'), S)",
    "item": "functools.partial(operator.getitem, D, 'n')",
    "random": "random.random",
    "class_": "Class",
}

USES = {
    "item": "collections.defaultdict(FN)['k']",
    "function": "operator.getitem(collections.defaultdict(FN), 'k')",
    "iterator": "next(map(collections.defaultdict(FN).__getitem__, ['k']))",
    "formatted": "'{k}'.format_map(collections.defaultdict(FN))",
    "percent": "'%(k)s' % collections.defaultdict(FN)",
    "itself": "collections.defaultdict(FN).__missing__('k')",
    "copied": "collections.defaultdict(FN).copy()['k']",
    "joined": "(collections.defaultdict(FN) | {})['k']",
    "derived": "Derived(FN)['k']",
    "given": "given(collections.defaultdict(int), FN)['k']",
    "outside": "(OUTSIDE.clear(), OUTSIDE[1])[1]",
    "outside_function": "(OUTSIDE.clear(), operator.getitem(OUTSIDE, 1))[1]",
}

# What these read is known.
KNOWN = {"function", "partial", "bound", "object", "bound_c"}

PROGRAM = """
import collections, itertools, random

C = itertools.count()
OUTSIDE = collections.defaultdict(FN)

class Derived(collections.defaultdict):
    pass

def given(d, factory):
    d.default_factory = factory
    return d

def f(x):
    return x * 2, USE

target = f

def steps(f):
    x = torch.arange(2.0)
    random.seed(1)
    for _ in range(3):
        yield attempt(f, x), S.n, len(L), repr(C)
    S.n = 5
    yield attempt(f, x), S.n, len(L), repr(C)
    yield attempt(f, x), S.n, len(L), repr(C)
    D["n"] = 7
    L.append(1)
    yield attempt(f, x), S.n, len(L), repr(C)
    kept.cache_clear()
    yield attempt(f, x), S.n, len(L), repr(C)
    yield attempt(f, x), S.n, len(L), repr(C)
"""


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("use", USES)
def test_what_a_factory_gives_is_as_eager(use, factory):
    program = PROGRAM.replace("USE", USES[use]).replace("FN", FACTORIES[factory])
    report = worlds.run(PRELUDE + program)
    assert report.finding is None
    if factory in KNOWN:
        assert report.hits, report.reasons


def test_a_factory_that_nobody_sees_is_named():
    program = PROGRAM.replace("USE", USES["item"]).replace("FN", FACTORIES["cache"])
    report = worlds.run(PRELUDE + program)
    assert report.finding is None
    assert "a defaultdict's default_factory is a functools._lru_cache_wrapper" in report.reasons[0]
