"""Exceptions that follow from data, after a change, which the program catches and goes on.

Owns what a call gives then, and leaves behind.  Does not own exceptions that leave the call
(tests/soundness/test_assumptions.py), nor where they are caught (tests/capture/test_caught.py).
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magpy
from magpy.replay import support
from tests.comparison import assert_same

#: What may raise, for the tensor x of two numbers: one that does not, and one that does.
OPERATIONS = {
    "cholesky": ("torch.linalg.cholesky(torch.eye(2) * x)", [1.0, 2.0], [-1.0, 2.0]),
    "inverse": ("torch.linalg.inv(torch.diag(x))", [1.0, 2.0], [0.0, 2.0]),
    "embedding": ("F.embedding(x.long(), torch.eye(3))", [1.0, 2.0], [1.0, 7.0]),
    "index": ("torch.eye(3)[x.long()]", [1.0, 2.0], [1.0, 7.0]),
    "gather": ("x.gather(0, (x - 1).long())", [1.0, 2.0], [1.0, 7.0]),
    "one_hot": ("F.one_hot(x.long())", [1.0, 2.0], [-1.0, 2.0]),
    "multinomial": ("torch.multinomial(x, 1)", [1.0, 2.0], [-1.0, 2.0]),
    "loss": ("F.cross_entropy(torch.eye(2), x.long())", [1.0, 0.0], [1.0, 7.0]),
    "numpy": ("torch.from_numpy(np.linalg.inv(np.diag(x.numpy())))", [1.0, 2.0], [0.0, 2.0]),
}
CHANGES = {
    "a_buffer": "count.add_(1)",
    "an_argument": "y.mul_(2)",
    "a_number_drawn": "y = y + torch.rand(2)",
    "dropout": "y = F.dropout(y)",
}
CATCHES = {
    "try": """
    try:
        r = {}
    except (RuntimeError, IndexError, ValueError):
        bad.append(1)
        r = x * 0""",
    "in_a_helper": """
    r = attempt(lambda: {})""",
    "around_other_blocks": """
    try:
        with torch.enable_grad():
            try:
                r = {}
            finally:
                bad.append(2)
    except Exception:
        r = count * 3""",
    "bare": """
    try:
        r = {}
    except:
        with torch.no_grad():
            bad.append(6)
        r = [v for v in (count, x)]""",
    "suppress": """
    r = x
    with contextlib.suppress(Exception):
        r = {}""",
    "a_manager": """
    r = x
    with Ends():
        r = {}""",
    "a_generator": """
    r = x
    with ends():
        r = {}""",
    "another": """
    try:
        r = {}
    except Exception as e:
        bad.append(3)
        raise KeyError("instead") from e""",
}
SOURCE = """
count = torch.zeros(())
bad = []

class Ends:
    def __enter__(self): return self
    def __exit__(self, kind, *error):
        bad.append(str(kind))
        return True

@contextlib.contextmanager
def ends():
    try:
        yield
    except Exception:
        bad.append(4)

def attempt(f):
    try:
        return f()
    except Exception:
        bad.append(5)
        return count * 2

def f(x, y):
    {change}{catch}
    y.add_(1)
    return r, y
"""
NAMES = {"torch": torch, "np": np, "F": F, "contextlib": contextlib}


def calls(operation, change, catch, compile):
    text, good, wrong = OPERATIONS[operation]
    scope = dict(NAMES)
    exec(SOURCE.format(change=CHANGES[change], catch=CATCHES[catch].format(text)), scope)
    torch.manual_seed(0)
    c = compile(scope["f"])
    seen = []
    for values in (good, good, wrong, good, wrong):
        y = torch.ones(2)
        try:
            result = c(torch.tensor(values), y)
        except Exception as e:  # noqa: BLE001 - whatever leaves the call
            result = type(e), str(e), type(e.__cause__)
        seen.append((result, y, scope["count"].clone(), list(scope["bad"]), torch.rand(1)))
    return seen, c


@pytest.mark.parametrize("catch", CATCHES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_caught_is_eagers(operation, change, catch):
    eager, _ = calls(operation, change, catch, lambda f: f)
    compiled, _ = calls(operation, change, catch, lambda f: magpy.compile(f, backend="eager"))
    assert_same(compiled, eager)


@pytest.mark.parametrize("change", CHANGES)
def test_calls_that_raise_nothing_are_served_by_an_entry(change):
    _, c = calls("cholesky", change, "try", lambda f: magpy.compile(f, backend="eager"))
    assert magpy.stats(c).hits >= 2


@pytest.mark.parametrize("change", CHANGES)
def test_compilers_graphs_are_left_likewise(change):
    eager, _ = calls("embedding", change, "try", lambda f: f)
    compiled, _ = calls("embedding", change, "try", lambda f: magpy.compile(f, backend="aot_eager"))
    assert_same(compiled, eager)


@pytest.mark.parametrize(("block", "saves"), [("torch.no_grad()", 0), ("Ends()", 1)])
def test_only_where_somebody_may_catch_it_changes_are_saved(block, saves, monkeypatch):
    """What an entry saves takes time in every call."""
    made = []
    save = support.save
    monkeypatch.setattr(support, "save", lambda *args: made.append(1) or save(*args))
    scope = dict(NAMES)
    catch = f"""
    r = x
    with {block}:
        r = torch.linalg.cholesky(torch.eye(2) * x)"""
    exec(SOURCE.format(change=CHANGES["a_buffer"], catch=catch), scope)
    c = magpy.compile(scope["f"], backend="eager")
    for _ in range(2):
        c(torch.ones(2), torch.ones(2))
    assert magpy.stats(c).hits == 1
    assert len(made) == saves


def in_a_generator(x, op, log):
    def rows():
        try:
            yield op(x)
        except RuntimeError:
            log.append("caught")
            yield x * 0

    return next(rows())


def in_a_coroutine(x, op, log):
    async def row():
        try:
            return op(x)
        except RuntimeError:
            log.append("caught")
            return x * 0

    try:
        row().send(None)
    except StopIteration as e:
        return e.value


def below_c(x, op, log):
    try:
        return sorted([x, x * 2], key=lambda t: op(t).sum())
    except RuntimeError:
        log.append("caught")
        return 0


def again_and_again(x, op, log):
    for k in range(4):
        try:
            return op(x + k * torch.eye(2))
        except RuntimeError:
            log.append(k)


def around_a_backward_pass(x, op, log):
    w = torch.ones(2, 2, requires_grad=True)
    try:
        (op(x) * w).sum().backward()
    except RuntimeError:
        log.append("caught")
    return w.grad


GOOD, BAD = torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    "catch", [in_a_generator, in_a_coroutine, below_c, again_and_again, around_a_backward_pass]
)
def test_what_other_frames_of_the_call_catch_is_eagers(catch):
    def seen(compile):
        count, log = torch.zeros(()), []

        def f(x):
            count.add_(1)
            return catch(x, torch.linalg.cholesky, log), count.clone()

        c = compile(f)
        return [(c(x), count.clone(), list(log)) for x in (GOOD, GOOD, BAD, GOOD, BAD, GOOD)]

    made = []

    def compiled(f):
        made.append(magpy.compile(f, backend="eager"))
        return made[0]

    assert_same(seen(compiled), seen(lambda f: f))
    assert magpy.stats(made[0]).hits >= 2, magpy.stats(made[0]).reasons


def test_a_manager_that_holds_back_only_later():
    """That it gives nothing was true of the function that stood there."""

    def seen(compile):
        class Timer:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                return None

        count, log = torch.zeros(()), []

        def f(x):
            count.add_(1)
            with Timer():
                return torch.linalg.cholesky(x)
            log.append("held back")
            return x * 0

        c = compile(f)
        found = [c(GOOD), c(GOOD)]
        Timer.__exit__ = lambda self, *error: True
        return found + [c(x) for x in (BAD, GOOD, BAD)], count, log

    assert_same(seen(lambda f: magpy.compile(f, backend="eager")), seen(lambda f: f))
