"""An argument that is also what the call finds somewhere else: in another call it may not be."""

from __future__ import annotations

import contextvars
import functools
import operator
import types
import weakref

import pytest
import torch

import magpy


class Thing:
    """Holds something."""


HELD = torch.ones(2)
BOX = [HELD]
THING = Thing()
THING.t = HELD
REF, REF_OF_THING = weakref.ref(HELD), weakref.ref(THING)
NAMES = weakref.WeakValueDictionary(k=HELD)
VAR = contextvars.ContextVar("VAR", default=HELD)


@functools.lru_cache
def cached(n):
    return HELD


@functools.lru_cache
def pair(n):
    return HELD, n


cached(1), pair(1)

FOUND = {
    "cached": lambda: cached(1),
    "in what is cached": lambda: pair(1)[0],
    "context variable": VAR.get,
    "reference": lambda: REF(),
    "reference of the owner": lambda: REF_OF_THING().t,
    "weak dictionary": lambda: NAMES["k"],
    "itemgetter": lambda: operator.itemgetter(0)(BOX),
    "attrgetter": lambda: operator.attrgetter("t")(THING),  # which is refused
    "partial": lambda: functools.partial(getattr, THING, "t")(),
    "bound method": lambda: BOX.__getitem__(0),
    "iterator": lambda: next(iter(BOX)),
    "namespace": lambda: types.SimpleNamespace(t=HELD).t,
    "proxy": lambda: types.MappingProxyType({"t": HELD})["t"],
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("found", FOUND.values(), ids=FOUND)
def test_what_is_found_is_given_in_some_calls(found, first):
    c = magpy.compile(lambda x: (found(), x * 1), backend="eager")
    for given in (first, not first, first, not first):
        assert c(HELD if given else torch.ones(2))[0] is HELD
    assert magpy.stats(c).hits == (0 if found is FOUND["attrgetter"] else 2)
