"""Runs a case in two worlds, eager and compiled, in step, and compares after every step.

Owns: what a case is, and that each world has its own random state. Does not own: the comparison
(`tests/comparison.py`). A case is a generator function of `compile`: it builds everything it needs,
acts, and yields what a user can see at that moment. Its eager world gets the identity function.
"""

from __future__ import annotations

import functools
import random
import warnings

import numpy as np
import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same


def case(cases, *, refused=None, compilers=None, captures=None):
    """Registers a case in `cases`.

    Args:
        refused: why some of its calls must run eagerly.
        compilers: what compilers of graphs cannot do of it, so that the case is for the backend
            "eager" alone.
        captures: so many captures serve all of its calls.
    """

    def register(f):
        marks = [pytest.mark.filterwarnings("ignore")]
        f.captures = captures
        cases.append(pytest.param(f, refused, compilers, id=f.__name__, marks=marks))
        return f

    return register


class RandomState:
    """The generators of one world."""

    def __init__(self):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.save()

    def save(self):
        self.states = torch.get_rng_state(), random.getstate(), np.random.get_state()

    def load(self):
        torch.set_rng_state(self.states[0])
        random.setstate(self.states[1])
        np.random.set_state(self.states[2])


def steps(generator, states):
    """The generator's steps, each under its world's random state."""
    while True:
        states.load()
        try:
            seen = next(generator)
        except StopIteration:
            return
        finally:
            states.save()
        yield seen


def run(f, refused, backend="eager"):
    """Runs a case and fails at the first difference, or if a call ran eagerly without reason."""
    made = []

    def compile(function, **options):
        made.append(magpy.compile(function, **{"backend": backend, **options}))
        return made[-1]

    eager = steps(f(lambda function, **options: function), worlds := RandomState())
    compiled = steps(f(compile), own := RandomState())
    number = 0
    missing = object()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            want = next(eager, missing)
            got = next(compiled, missing)
            if want is missing or got is missing:
                break
            assert_same(got, want, f"step {number}")
            number += 1
    assert want is got, "the worlds differ in the number of steps"
    assert number, "a case yields at least once"
    assert torch.equal(own.states[0], worlds.states[0]), "torch's generator differs"
    assert own.states[1] == worlds.states[1], "Python's generator differs"
    assert own.states[2][2] == worlds.states[2][2], "numpy's generator differs"
    assert made, "a case compiles something"
    captures = getattr(f, "captures", None)
    if captures is not None:
        assert sum(magpy.stats(c).captures for c in made) <= captures
    ran_eagerly = sum(magpy.stats(c).eager_calls for c in made)
    reasons = [reason for c in made for reason in magpy.stats(c).reasons]
    # What raises is eager by design: nothing would be gained by an entry for it.
    # Another callable of the same code is tried first with an entry for all that are alike.
    raised = "the call raised", " raises a", "that is another one in every call is given"
    unexpected = [r for r in reasons if not any(said in r for said in raised)]
    if refused is None:
        assert not unexpected, unexpected
        assert ran_eagerly == 0 or reasons, "calls ran eagerly without a reason"
    else:
        assert unexpected, "nothing was refused: the case says that something is"


def attempt(f, *args, **kwargs):
    """The result, or the exception."""
    try:
        return f(*args, **kwargs)
    except Exception as error:
        return error.with_traceback(None)


def check_all(cases):
    """The parametrized test of a list of cases."""

    @pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
    @pytest.mark.parametrize(("f", "refused", "compilers"), cases)
    def test(f, refused, compilers, backend):
        if compilers and backend != "eager":
            pytest.skip(compilers)
        run(f, refused, backend)

    return test


def assert_served(program, captures, hits=3):
    """Fails if so many captures do not serve all calls of what a case compiles first."""
    made = []

    def compile(f):
        made.append(magpy.compile(f, backend="eager"))
        return made[-1]

    for _ in program(compile):
        pass
    stats = magpy.stats(made[0])
    assert stats.captures <= captures and stats.hits >= hits, (program.__name__, stats)


quiet = functools.partial(warnings.catch_warnings, record=True)
