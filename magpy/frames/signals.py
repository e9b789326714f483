"""What handlers of signals raise, which is the program's and comes at any time.

Owns telling a handler's exception from others, and the scope in which handlers wait.  Does not own
how they are made to wait (csrc/interp/signals.cpp).  Called wherever magpy takes an exception for a
failure of its own or a compiler's, and by the session.
"""

from __future__ import annotations

import contextlib
import signal
import types
from collections.abc import Iterator
from typing import Any

from magpy import _interp


def handles(function: Any, number: int) -> bool:
    """Whether a function is what the program handles a signal with.

    Args:
        function: a Python function.
        number: the signal's.
    """
    try:
        handler = signal.getsignal(number)
    except ValueError:
        return False
    return _function_of(handler) is function


def raised_by_handler(error: BaseException) -> bool:
    """Whether the handler of a signal raised an exception (KeyboardInterrupt, a time limit).

    Such an exception says nothing about what it interrupted.
    """
    if not isinstance(error, Exception):
        return True
    codes = set()
    tb = error.__traceback__
    while tb is not None:
        codes.add(tb.tb_frame.f_code)
        tb = tb.tb_next
    return any(_code_of(signal.getsignal(s)) in codes for s in signal.valid_signals())


@contextlib.contextmanager
def held() -> Iterator[None]:
    """No handler runs meanwhile on this thread: those of signals that come run afterwards."""
    _interp.hold_signals()
    try:
        yield
    finally:
        _interp.release_signals()


def _function_of(handler: Any) -> Any:
    if isinstance(handler, types.MethodType):
        return handler.__func__
    if isinstance(handler, types.FunctionType):
        return handler
    return _interp.type_lookup(type(handler), "__call__")


def _code_of(handler: Any) -> Any:
    return getattr(_function_of(handler), "__code__", _interp.ABSENT)


__all__ = ["handles", "held", "raised_by_handler"]
