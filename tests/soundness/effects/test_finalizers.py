"""Objects of a call that run code of the program when they die, after the call."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

import magpy

LOG = []
KEPT = []


class Told:
    def __del__(self):
        LOG.append("died")


class Thing:
    pass


def _closing():
    try:
        yield 1
    finally:
        LOG.append("closed")


def held_by_an_exception_that_leaves(x):
    d = Told()
    raise ValueError(d is None)


def a_generator_that_it_leaves(x):
    g = _closing()
    next(g)
    raise ValueError


def a_callback_that_it_leaves(x):
    o = Thing()
    r = weakref.ref(o, lambda r: LOG.append("called"))
    raise ValueError(r is None)


def a_cycle(x):
    d = Told()
    d.me = d
    return x + 1


def a_copy_in_a_cycle(x):
    d = copy.copy(Told())
    d.me = d
    return x + 1


def made_without_init(x):
    d = Told.__new__(Told)
    d.me = d
    return x + 1


def held_by_a_caught_exception(x):
    d = Told()
    try:
        return [][1]  # noqa: PLE0643
    except IndexError as e:
        err = e
    return x + (d is err)


def held_by_a_recursive_function(x):
    def down(n):
        return d if n == 0 else down(n - 1)

    d = Told()
    down(2)
    return x + 1


def held_by_an_exception_that_is_kept(x):
    try:
        d = Told()
        raise ValueError(d is None)
    except ValueError as e:
        KEPT[:] = [e]
    return x + 1


def dies_in_the_call(x):
    d = Told()
    return x + (d is None)


def is_kept(x):
    KEPT.append(Told())
    return x + 1


def dies_of_a_list(x):
    return [Told() for _ in range(2)] and x + 1


def a_callback_in_the_call(x):
    o = Thing()
    r = weakref.ref(o, lambda r: LOG.append("called"))
    del o
    return x + (r() is not None)


LATER = [
    *(held_by_an_exception_that_leaves, a_generator_that_it_leaves, a_callback_that_it_leaves),
    *(a_cycle, a_copy_in_a_cycle, made_without_init, held_by_a_caught_exception),
    *(held_by_a_recursive_function, held_by_an_exception_that_is_kept),
]
NOW = [dies_in_the_call, is_kept, dies_of_a_list, a_callback_in_the_call]


@pytest.fixture(autouse=True)
def only_new_objects_are_collected():
    """Each collection looks at what the test has made, and not at all that torch has loaded."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _outcomes(f):
    KEPT.clear()
    gc.collect()
    LOG.clear()
    found = []
    for i in range(5):
        try:
            f(torch.ones(1))
        except ValueError as e:
            found.append(str(e))
        gc.collect()
        found.append(list(LOG))
        if i == 2:
            KEPT.clear()
    return found


@pytest.mark.parametrize("program", LATER + NOW, ids=lambda f: f.__name__)
def test_what_runs_then_runs_as_often(program):
    f = magpy.compile(program, backend="eager")
    wanted = _outcomes(program)
    assert any(map(len, wanted))
    assert _outcomes(f) == wanted
    if program in NOW:
        assert magpy.stats(f).hits == 4
    else:
        (reason, *_) = magpy.stats(f).reasons
        assert any(r in reason for r in ("runs code when it dies", "raised", "runs in it"))
