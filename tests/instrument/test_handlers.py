"""Which frames of a call may catch what an operation raises (magpy/instrument/handlers.py)."""

from __future__ import annotations

import _thread
import contextlib
import decimal
import sys
import threading
import unittest
import warnings

import numpy as np
import pytest
import torch

from magpy.instrument.handlers import Catching, may_hold_back


class Mine:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            return
        len("")


@contextlib.contextmanager
def timer():
    try:
        yield
    finally:
        len("")


@contextlib.contextmanager
def mine():
    with contextlib.suppress(ValueError):
        yield


@pytest.mark.parametrize(
    ("manager", "holds"),
    [
        (Mine(), True),
        (mine(), True),
        (Timer(), False),
        (timer(), False),
        (contextlib.suppress(ValueError), True),
        (contextlib.ExitStack(), True),
        (unittest.TestCase().assertRaises(ValueError), True),
        (pytest.raises(ValueError), True),
        (contextlib.nullcontext(), False),
        (threading.Lock(), False),
        (warnings.catch_warnings(), False),
        (decimal.localcontext(), False),
        (torch.no_grad(), False),
        (torch.autocast("cpu"), False),
        (torch.random.fork_rng(), False),
        (np.errstate(), False),
    ],
    ids=lambda v: type(v).__name__,
)
def test_which_managers_may_end_an_exception(manager, holds):
    assert may_hold_back(manager) is holds


def asked(enter=None):
    """What is found here, where the caller has entered a block."""
    catching = Catching()
    if enter is not None:
        catching.entered(enter, sys._getframe(1))
    return catching(sys._getframe())


def in_a_thread(f):
    """What a function gives that no frame of pytest has called."""
    found = []
    scope = {"f": f, "found": found, "__name__": "program"}
    exec("def run():\n    found.append(f())", scope)
    done = threading.Event()

    def started():
        scope["run"]()
        done.set()

    _thread.start_new_thread(started, ())
    assert done.wait(10)
    return found[0]


def plain():
    return asked()


def within_try():
    try:
        return asked()
    except ValueError:
        return None


def within_finally():
    try:
        return asked()
    finally:
        len("")


def within_finally_that_returns():
    try:
        asked_here = asked()
    finally:
        return asked_here  # noqa: B012 - it ends the exception


def within_bare_except():
    try:
        return asked()
    except:  # noqa: E722 - the clause that is meant
        return None


def within_except_group():
    found = []
    try:
        found.append(asked())
    except* ValueError:
        pass
    return found[0]


def within_finally_within_try():
    try:
        try:
            return asked()
        finally:
            len("")
    except ValueError:
        return None


def within_bare_except_with_a_block():
    try:
        return asked()
    except:  # noqa: E722 - the clause that is meant
        with torch.no_grad():
            len("")
        return None


def within_bare_except_with_finally():
    try:
        return asked()
    except:  # noqa: E722 - as above
        try:
            len("")
        finally:
            len("")
        return None


def within_bare_except_with_comprehension():
    try:
        return asked()
    except:  # noqa: E722 - as above
        return [v for v in ()]


def within_finally_with_a_block():
    found = None
    try:
        found = asked()
    finally:
        with torch.no_grad():
            return found  # noqa: B012 - it ends the exception


def within_finally_with_try():
    try:
        return asked()
    finally:
        try:
            len("")
        except ValueError:
            len("")


def within_except_that_raises_again():
    try:
        return asked()
    except:  # noqa: E722 - as above
        raise


def within_a_block_of_torchs_within_try():
    manager = torch.no_grad()
    try:
        with manager:
            return asked(manager)
    except ValueError:
        return None


def within_a_handler_within_try():
    try:
        try:
            raise KeyError
        except KeyError:
            return asked()
    except ValueError:
        return None


def after_try():
    try:
        len("")
    except ValueError:
        return None
    return asked()


def within_handler():
    try:
        raise ValueError
    except ValueError:
        return asked()


def within_a_block_of_torchs():
    manager = torch.no_grad()
    with manager:
        return asked(manager)


def within_a_block_that_holds_back():
    manager = contextlib.suppress(ValueError)
    with manager:
        return asked(manager)


def called_within_try():
    try:
        return plain()
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("f", "catches"),
    [
        (plain, False),
        (within_try, True),
        (within_finally, False),
        (within_finally_that_returns, True),
        (within_bare_except, True),
        (within_except_group, True),
        (within_finally_within_try, True),
        (within_bare_except_with_a_block, True),
        (within_bare_except_with_finally, True),
        (within_bare_except_with_comprehension, True),
        (within_finally_with_a_block, True),
        (within_finally_with_try, False),
        (within_except_that_raises_again, False),
        (within_a_block_of_torchs_within_try, True),
        (within_a_handler_within_try, True),
        (after_try, False),
        (within_handler, False),
        (within_a_block_of_torchs, False),
        (within_a_block_that_holds_back, True),
        (called_within_try, True),
    ],
)
def test_which_places_catch(f, catches):
    assert in_a_thread(f) is catches
