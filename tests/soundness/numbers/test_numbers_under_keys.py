"""Numbers in dicts that vary from call to call: C code that looks at the keys alone fixes none."""

import pytest
import torch

import magpy
from tests.comparison import assert_same

X = torch.ones(2)


def of_keys(names, options):
    return [X * options[k] for k in names]


USES = {
    "sorted": lambda **o: of_keys(sorted(o), o),
    "sorted backwards": lambda **o: of_keys(sorted(o, reverse=True), o),
    "sorted view": lambda **o: of_keys(sorted(o.keys()), o),
    "sorted entries": lambda **o: [X * v for _, v in sorted(o.items())],
    "sorted by a key": lambda **o: of_keys(sorted(o, key=lambda k: k[-1]), o),
    "least": lambda **o: X * o[min(o)],
    "greatest": lambda **o: X * o[max(o)],
    "least entry": lambda **o: X * min(o.items())[1],
    "set": lambda **o: of_keys(sorted(set(o)), o),
    "frozenset": lambda **o: ("b" in frozenset(o.keys()), X * o["b"]),
    "list": lambda **o: of_keys(list(o), o),
    "length": lambda **o: X * o["a"] + len(o),
}


@pytest.mark.parametrize("f", USES.values(), ids=USES)
def test_the_values_stay_inputs(f):
    c = magpy.compile(f, backend="eager")
    for i in range(8):
        given = {"b": i * 0.3 + 0.1, "a": i * 0.7 + 0.2, "c": i + 5.5}
        assert_same(c(**given), f(**given), str(i))
    stats = magpy.stats(c)
    assert (stats.captures, stats.eager_calls) == (2, 0)


@pytest.mark.parametrize("f", USES.values(), ids=USES)
def test_other_keys_are_another_entry(f):
    c = magpy.compile(f, backend="eager")
    for i in range(6):
        given = {"b": i + 0.5, "a": 2.5, "z" if i % 2 else "0": i + 0.25}
        assert_same(c(**given), f(**given), str(i))


def looks_at_values(**o):
    return X + 1, sorted(o.values()), max(o.values()), set(o.items()), sorted(o, key=o.get)


def equal_keys_of_pairs(**o):
    return X + 1, sorted([("k", o["a"]), ("k", o["b"])]), min(("k", o["a"]), ("k", o["b"]))


@pytest.mark.parametrize("f", [looks_at_values, equal_keys_of_pairs])
def test_what_looks_at_the_values_is_as_in_eager(f):
    c = magpy.compile(f, backend="eager")
    for a, b in ((1.5, 2.5), (2.5, 1.5), (1.5, 3.5), (4.5, 4.25), (2.0, 2.5), (7.5, 1.0)):
        assert_same(c(a=a, b=b), f(a=a, b=b), str((a, b)))
