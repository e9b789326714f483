"""Families: compiled callables of one piece of code, which share their entries.

Owns which callables are alike (the layers of a model, each compiled; the closures that a function
returns; the models of a cross-validation) and the entries that serve all of them: those of a
compiled callable that is given the function or module as its first argument.  Does not own how such
an entry is made (magpy/runtime/compiled.py, with modules and functions that vary).  Called by that.

The first of a family has entries of its own, whose guards are about this one alone and cost less.
"""

from __future__ import annotations

import collections
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from magpy import _interp
from magpy.errors import hide_frames
from magpy.objects.types import isinstance

#: Families that are kept when their last member is gone: the next may come in a moment.
_MOST = 16
# A generator runs when its caller goes on with it, and not in the call.
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Family:
    """Callables that are alike.

    Args:
        make: makes the compiled callable of them all, of a function that is called on a miss.
    """

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        """There is no member yet."""
        self._members: dict[int, weakref.ref[Any]] = {}
        self._first: Any = None
        self._make = make

    @functools.cached_property
    def shared(self) -> Any:
        """The compiled callable of them all."""
        return self._make(self._miss)

    def join(self, member: Any) -> bool:
        """Lets the shared entries serve a compiled callable; False: it goes its own way."""
        wrapped = member._magpy_wrapped
        if self._first is None:
            self._first = weakref.ref(member)
            return False
        shared = vars(self).get("shared")
        if shared is not None and shared._magpy_options.gave_up and not shared._magpy_entries:
            return False
        first = self._first()
        if first is not None and _same(first._magpy_wrapped, wrapped):
            return False  # the very same, compiled twice
        forget = functools.partial(self._members.pop, id(wrapped))
        self._members[id(wrapped)] = weakref.ref(member, forget)
        member._magpy_driver = functools.partial(self.shared, wrapped)
        return True

    def leave(self, wrapped: Any) -> Any:
        """Lets the compiled callable of a member go its own way; None: it is no member."""
        found = self._members.pop(id(wrapped), None)
        member = found() if found is not None else None
        if member is not None:
            member._magpy_options.family = None
            member._magpy_driver = None
        return member

    def _miss(self, shared: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that no entry fits is captured for all, or its member goes its own way."""
        manager = shared._magpy_options
        captures, refused, known = manager.captures, manager.refused, manager.journal.reasons.copy()
        before = {id(e.tag) for e in shared._magpy_entries}
        result = manager.miss(shared, args, kwargs)
        if manager.captures > captures:
            found = self._members.get(id(args[0]))
            member = found() if found is not None else None
            if member is not None:
                member._magpy_options.shared_captures += 1
        if manager.again:
            self._differentiated_again(shared, args[0], before)
        left = result is _interp.MISS and (manager.gave_up or manager.repeated.stormy)
        if manager.refused == refused and not left:
            return result
        member = self.leave(args[0])
        if member is not None:
            for reason in manager.journal.reasons - known:
                member._magpy_options.note(reason)
        if result is _interp.MISS and member is not None:
            try:
                return member(*args[1:], **kwargs)
            except BaseException as e:  # noqa: BLE001 - it is raised at the call
                return _interp.Raise(hide_frames(e))
        return result

    def _differentiated_again(self, shared: Any, wrapped: Any, before: set[int]) -> None:
        """What a member gives is differentiated twice: it goes its own way, with other graphs."""
        shared._magpy_options.again = False
        shared._magpy_entries = [e for e in shared._magpy_entries if id(e.tag) in before]
        member = self.leave(wrapped)
        if member is not None:
            member._magpy_options.differentiated_again()


_families: weakref.WeakValueDictionary[Any, Family] = weakref.WeakValueDictionary()
_recent: collections.deque[Family] = collections.deque(maxlen=_MOST)


def family_of(
    wrapped: Any, options: tuple[Any, ...], make: Callable[[Callable[..., Any]], Any]
) -> Family | None:
    """The family of a callable; None: it can have none.

    Args:
        wrapped: the callable.
        options: what tells its options from others.
        make: as of `Family`.
    """
    key = _code_of(wrapped), options
    if key[0] is None or not _has_hash(key):
        return None
    family = _families.get(key)
    if family is None:
        family = _families[key] = Family(make)
        _recent.append(family)
    return family


def _has_hash(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b) is types.MethodType:
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    return a is b


def _code_of(wrapped: Any) -> Any:
    if isinstance(wrapped, torch.nn.Module):
        return type(wrapped)
    inner = wrapped.__func__ if type(wrapped) is types.MethodType else wrapped
    if type(inner) is not types.FunctionType or inner.__code__.co_flags & _SUSPENDS:
        return None
    return inner.__code__


def forget() -> None:
    """Begins anew: no family is known."""
    _families.clear()
    _recent.clear()


__all__ = ["Family", "family_of", "forget"]
