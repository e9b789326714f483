"""Callables of every kind that a C function is given, and calls where no probe is.

Whatever they read or do, the calls are those of the eager world: recorded with a guard, or run
eagerly with a reason. Where the C function reports its calls:
tests/soundness/unwatched/test_values_given_to_c.py.
"""

from __future__ import annotations

import pytest

from tests.fuzz import worlds
from tests.soundness.classes.test_callables_in_special_slots import PRELUDE

KINDS = {
    "function": "function",
    "partial": "functools.partial(read, 'n')",
    "partial_of_c": "functools.partial(getattr, S, 'n')",
    "stores": "functools.partial(setattr, S, 'n')",
    "cache": "kept",
    "bound": "S.get",
    "object": "S",
    "dict_get": "N.get",
    "append": "L.append",
    "next_": "functools.partial(next, C)",
    "print_": "print",
    "draws": "lambda *a: random.random()",
    "prints": "lambda *a: (print(a), 1)[1]",
}

USES = {
    "call": "operator.call(FN, 1)",
    "dumps": "json.dumps([{1}], default=FN)",
    "hook": "json.loads('{\"a\": 1}', object_hook=FN)",
    "pairs": "json.loads('{\"a\": 1}', object_pairs_hook=FN)",
    "number": "json.loads('[1.5]', parse_float=FN)",
    "vectorize": "np.vectorize(FN, otypes=[float])([1, 2]).tolist()",
    "universal": "list(np.frompyfunc(FN, 1, 1)([1, 2]))",
    "compares": "sorted([2, 1], key=functools.cmp_to_key(FN))",
    "method": "types.MethodType(FN, 1)()",
    "elements": "torch.arange(2.0).apply_(FN).tolist()",
    "replaces": "re.sub('a', FN, 'aba')",
    "reduces": "functools.reduce(FN, [1, 2, 1])",
    "remembers": "functools.lru_cache(None)(FN)(1)",
}

PROGRAM = """
import itertools, json, random, re, types
import numpy as np

C = itertools.count()
N = {1: 2, 2: 0}

def f(x):
    return x * 2, USE

target = f

def show():
    return S.n, dict(D), len(L), dict(N), repr(C)

def steps(f):
    x = torch.arange(2.0)
    for i in range(3):
        random.seed(i)
        yield attempt(f, x), show()
    S.n = 5
    N[1] = 4
    yield attempt(f, x), show()
    yield attempt(f, x), show()
    D["n"] = 7
    L.append(1)
    yield attempt(f, x), show()
    kept.cache_clear()
    yield attempt(f, x), show()
    yield attempt(f, x), show()
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
def test_what_a_c_function_calls_is_as_eager(use, kind):
    program = PROGRAM.replace("USE", USES[use]).replace("FN", KINDS[kind])
    report = worlds.run(PRELUDE + program)
    assert report.finding is None
    if kind == "function" and use not in ("elements", "replaces", "remembers"):
        assert report.hits, report.reasons


def test_a_callable_that_nobody_sees_is_named():
    program = PROGRAM.replace("USE", USES["universal"]).replace("FN", "kept")
    report = worlds.run(PRELUDE + program)
    assert report.finding is None
    assert "frompyfunc is given a functools._lru_cache_wrapper" in report.reasons[0]
    assert "Use a lambda instead" in report.reasons[0]
