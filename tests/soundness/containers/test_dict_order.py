"""The order of a dict that the call changes, as it is by then: what is replaced, deleted, new."""

from __future__ import annotations

import collections
import itertools

import pytest
import torch

import magpy


class Thing:
    """Holds attributes."""


LINES = ["d['a'] = x", "d['b'] = x + 1", "d.pop('a', None)", "d['c'] = 1", "d['b'] = 2"]
STARTS = ["", "a", "b", "ab", "ba", "ca", "bca"]


KINDS = {"dict": dict, "ordered": collections.OrderedDict, "attributes": Thing}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", list(itertools.permutations(LINES, 3)), ids=str)
def test_keys_come_in_eagers_order(lines, kind):
    body = "\n".join(f"    {line}" for line in lines)
    if kind == "attributes":
        body = body.replace("d.pop('a', None)", "d.__dict__.pop('a', None)")
        for key in "abc":
            body = body.replace(f"d['{key}']", f"d.{key}")
    names = {}
    exec(f"def f(d, x):\n{body}\n    return x * 2", names)

    def outcomes(f, starts):
        found = []
        for start in starts:
            holder = Thing() if kind == "attributes" else KINDS[kind]()
            d = holder.__dict__ if kind == "attributes" else holder
            d.update(dict.fromkeys(start, 0))
            f(holder, torch.ones(1))
            found.append([(k, str(v)) for k, v in d.items()])
        return found

    hits = 0
    for first in STARTS:
        starts = [first, first, *STARTS]
        compiled = magpy.compile(names["f"], backend="eager")
        assert outcomes(compiled, starts) == outcomes(names["f"], starts)
        hits += magpy.stats(compiled).hits
    assert hits >= len(STARTS)
