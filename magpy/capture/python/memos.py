"""Calls of `functools.lru_cache`s, whose memory is outside state.

A call that finds a result goes by it, and the guard asks for it again.  Where it finds none the
function runs.  If that is a function of an installed package (einops) which computes and does
nothing else, nobody can tell whether it ran: a call that is served need not fill the cache, and one
that finds a result for sizes which differ may compute it once more where the function's code shows
that it does no more.  The
program's own caches are its state, which it may ask for or clear.

Owns what is done about these calls, and the refusals where a result shows that it is remembered.
Does not own what the function itself does, which is watched.  Called for such a cache by
magpy/capture/python/c_calls.py, and with numbers that differ by magpy/capture/python/arrays.py.

Source: https://docs.python.org/3/library/functools.html#functools.lru_cache
"""

from __future__ import annotations

import builtins
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.errors import Refusal
from magpy.frames import call_sites
from magpy.frames.locations import in_package, is_users
from magpy.instrument.code_accesses import called_methods, looked_up
from magpy.ir.ops import Bind, Call, Check, Var
from magpy.models import callables
from magpy.models.lru_caches import remembered
from magpy.objects.plain_values import PLAIN_TYPES, is_immutable, is_plain
from magpy.objects.types import isinstance

_BY_IDENTITY = object.__dict__["__hash__"]
_NESTED = (tuple, frozenset)
#: What code may call that computes: methods of containers and texts, and builtins.
_METHODS = frozenset(
    ["append", "copy", "count", "extend", "format", "get", "index", "insert", "items", "join"]
    + ["keys", "values"]
)
_BUILTINS = {
    id(f)
    for f in [abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, len, list]
    + [max, min, range, reversed, round, set, slice, sorted, str, sum, tuple, type, zip]
    + [builtins.isinstance]
}
#: Caches whose function was watched, and did nothing but compute: it may run once more.
_COMPUTE: weakref.WeakSet[Any] = weakref.WeakSet()
#: Caches whose function gave something else when it ran once more.
_STALE: weakref.WeakSet[Any] = weakref.WeakSet()


def asked(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an lru_cache, or of a bound one.

    If it fills the cache its function runs, watched: also with numbers that differ from call to
    call, which are followed through it.  What the cache knows of these numbers it does not know of
    others: a function of which it is known that it only computes is followed there, too.
    """
    memo = getattr(f, "__func__", f)
    if memo.__module__ == "typing" and _annotates(args):
        return f(*args, **kwargs)
    recorder = run.recorder
    through = (
        not recorder.depth
        and of_package(memo)
        and memo not in _STALE
        and all(map(_is_key, _given(args, kwargs)))
    )
    if not through:
        run.session.rely_on((args, kwargs))
    before, looked = memo.cache_info().misses, _Watch(run) if through else None
    of_object = (f.__self__,) if isinstance(f, types.MethodType) else ()
    result = _interp.watched(f, args, kwargs, through)
    fills = memo.cache_info().misses != before
    if looked is not None and not fills and (memo in _COMPUTE or _computes(memo.__wrapped__)):
        given = _numbers(run, (*of_object, *_given(args, kwargs)))
        earlier = [(known, r) for f, known, r in run.looked_through if f is memo]
        for known, found in earlier:
            if _same(known, given):
                return found  # the object that the cache gives
        # Numbers that are equal here, and may differ elsewhere, find one object here.
        equal = any([v for _, v in known] == [v for _, v in given] for known, _ in earlier)
        if not equal and any(number is not None for number, _ in given):
            now = _interp.watched(memo.__wrapped__, (*of_object, *args), kwargs, through)
            if looked.computes_only(now) and now == result:
                _COMPUTE.add(memo)
                run.looked_through.append((memo, given, now))
                run.filled.append(memo)
                return now
            # What it computes has changed since: the cache gives what it was, and counts alone.
            _COMPUTE.discard(memo)
            _STALE.add(memo)
    if fills:
        if looked is not None and looked.computes_only(result):
            _COMPUTE.add(memo)
        else:
            _COMPUTE.discard(memo)
            run.refuse(
                f"{callables.name_of(memo)} fills its lru_cache",
                "The next call finds the result there and is captured",
            )
        run.filled.append(memo)
        given = _numbers(run, (*of_object, *_given(args, kwargs)))
        run.looked_through.append((memo, given, result))
        return result
    run.session.rely_on((args, kwargs))
    if not run.session.is_outside(result):
        run.session.reach(result)
    if run.refusals.first is None and not recorder.depth:
        kept = remembered(memo, (*of_object, *args), kwargs)
        if kept is None:
            run.refuse(
                f"{callables.name_of(memo)} is called, an lru_cache that keeps nothing, or "
                "whose keys code of the program compares"
            )
        else:
            run.memos.append((memo, *kept, result))
            run.identities += filter(
                run.session.is_outside, _parts((*of_object, *args, *kwargs.values()))
            )
        try:
            args, kwargs = recorder.convert_all(args), recorder.convert_all(kwargs)
            recorder.note(f, args, kwargs, Call, tensors=False)
        except Refusal as r:
            run.refusals.keep(r)
    return result


def _computes(function: types.FunctionType, deep: int = 3) -> bool:
    """Whether the code of a function shows that it computes from its arguments and does no more.

    It may run although the cache knows the result, which eager code has put there.
    """
    methods, names = called_methods(function.__code__), looked_up(function.__code__)
    if methods is None or names is None or function.__closure__ or not methods <= _METHODS:
        return False
    for name in names:
        v = function.__globals__.get(name, getattr(builtins, name, None))
        if id(v) in _BUILTINS or is_immutable(v):
            continue
        if isinstance(v, type) and issubclass(v, BaseException):
            continue
        if type(v) is not types.FunctionType or not deep or not _computes(v, deep - 1):
            return False
    return True


def _numbers(run: Run, values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """What a cache is asked for: each value, and those in tuples, with the number that it is.

    A number that differs from call to call is a symbol, or a variable where none is known.
    """
    found: list[tuple[Any, Any]] = []
    symbols = run.recorder.symbols
    for v in values:
        if isinstance(v, tuple):
            found += _numbers(run, v)
            continue
        var = run.session.tracked(v)
        number = None if symbols is None or var is None else symbols.numbers.get(Var(var))
        found.append((var if number is None else number, v))
    return found


def _same(a: list[tuple[Any, Any]], b: list[tuple[Any, Any]]) -> bool:
    """Whether these are the same values in every call, as far as is known by now."""
    return len(a) == len(b) and all(
        v == w and _expr(n) == _expr(m) for (n, v), (m, w) in zip(a, b, strict=True)
    )


def _expr(number: Any) -> Any:
    node = getattr(number, "node", None)
    return number if node is None else node.expr


def of_package(memo: Any) -> bool:
    """Whether a cache remembers the results of a function, in Python, of an installed package."""
    function = getattr(memo, "__wrapped__", None)
    return type(function) is types.FunctionType and in_package(function.__code__.co_filename)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args, *kwargs.values())


class _Watch:
    """What a function does while it runs below a cache.

    Args:
        run: the watched run, in which it is about to be called.
    """

    def __init__(self, run: Run) -> None:
        """Notes how much was done before."""
        self._run = run
        self._steps, self._stores = len(run.recorder.record.steps), len(run.session.stores())
        self._written = _written(run)

    def computes_only(self, result: Any) -> bool:
        """Whether it has computed a result of plain values, and done nothing else.

        Containers in the result are those that the cache holds: they may be kept nowhere.
        """
        run = self._run
        steps = run.recorder.record.steps[self._steps :]
        if any(not isinstance(s, (Bind, Check)) or s.mutates or s.random for s in steps):
            return False
        if len(run.session.stores()) != self._stores or _written(run) != self._written:
            return False
        found: list[tuple[Any, Any]] = []
        if not _of_plain_values(result, run.session.is_outside, found):
            return False
        run.remembered += found
        return True


def _written(run: Run) -> list[int]:
    """The outside containers that the run has changed, or that it may have."""
    return [
        id(c)
        for c, before, _, appended, unlogged in run.session.containers()
        if unlogged or appended or (isinstance(c, (list, dict, set)) and len(c) != len(before))
    ]


def shown(remembered: Iterable[tuple[Any, Any]], knows: Callable[[int], bool]) -> Refusal | None:
    """A refusal if the run has kept or changed a container that a cache remembers."""
    for container, before in remembered:
        if knows(id(container)) or _shallow(container) != before:
            return Refusal(
                "what an lru_cache gives is kept or changed: it is one object in all calls"
            )
    return None


def _shallow(v: Any) -> list[int]:
    """Which objects are in a list, a dict or a set, in their order."""
    return [id(x) for pair in v.items() for x in pair] if type(v) is dict else [*map(id, v)]


def _of_plain_values(
    v: Any, is_outside: Callable[[Any], bool], found: list[tuple[Any, Any]], deep: int = 4
) -> bool:
    """Whether something is made of plain values; adds the containers that the run has made."""
    if is_immutable(v) or isinstance(v, (type, types.FunctionType)):
        return True
    if not deep:
        return False
    t = type(v)
    if t in (list, dict, set):
        if is_outside(v):
            return True  # the same object in all calls, and what is read of it is guarded
        found.append((v, _shallow(v)))
        parts: Iterable[Any] = [x for pair in v.items() for x in pair] if t is dict else v
    elif t in _NESTED:
        parts = v
    else:
        return False
    return all(_of_plain_values(x, is_outside, found, deep - 1) for x in parts)


def _is_key(v: Any) -> bool:
    """Whether code of the program is not asked for the hash of an argument, which has one."""
    if type(v) in _NESTED:
        return all(map(_is_key, v))
    return is_plain(v) or _interp.type_lookup(type(v), "__hash__") is _BY_IDENTITY


def _annotates(args: tuple[Any, ...]) -> bool:
    """Whether code of a library makes an annotation of names, at which nobody looks."""
    frame = call_sites.program_frame()
    while frame is not None and frame.f_globals.get("__name__") == "typing":
        frame = frame.f_back
    return (
        frame is not None
        and not is_users(frame)
        and all(is_plain(a) or type(a).__module__ == "typing" for a in args)
    )


def _parts(values: Iterable[Any]) -> Iterator[Any]:
    """What is in tuples, and the rest as it is, but for plain values."""
    for v in values:
        if type(v) is tuple:
            yield from _parts(v)
        elif type(v) not in PLAIN_TYPES:
            yield v


__all__ = ["asked", "shown"]
