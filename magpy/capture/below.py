"""What Python changes that runs unwatched below a step: hooks in autograd's engine, and effects.

Owns the walk over what Python functions can reach, the comparison of what was there before and
after, and telling whether the call looks at what differs.  Does not own which functions these are:
of a pass of the engine magpy/capture/engine.py tells them, below a call for its effect the frame
evaluation hook does, as they start.  Called by these, magpy/capture/recorder.py and
magpy/capture/handler.py.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from magpy import _interp, _tensor
from magpy.capture.effects import container_states
from magpy.capture.where import refuse
from magpy.errors import Refusal

#: Modules whose functions change nothing of the program's that is not given to them.
FOREIGN = {"torch", "numpy", "builtins", "magpy", *sys.stdlib_module_names}

# Where something is held, (address of the holder, key), with what is there, and the holder, which
# keeps its address: a key is a name or a dict's key; None stands for all that a holder holds.
Places = dict[tuple[int, Any], tuple[Any, Any]]

_FIXED = (
    *(type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType),
)
# So many objects are looked at.
_MANY = 5000


def places(roots: list[Any]) -> Places | None:
    """What objects and Python functions can reach and change; None if that is too much."""
    found: Places = {}
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        v = todo.pop()
        if id(v) in seen or isinstance(v, _FIXED):
            continue
        seen.add(id(v))
        if len(seen) > _MANY:
            return None
        todo += _inside(v, found)
    return found


def changed(before: Places | None, roots: list[Any]) -> list[tuple[int, Any]] | None:
    """Where something else is now than before, in reach of the same; None if nobody can tell."""
    now = places(roots) if before is not None else None
    return None if now is None or before is None else _differences(before, now)


def _differences(before: Places, now: Places) -> list[tuple[int, Any]]:
    return [
        place
        for place in {**before, **now}
        if place not in now or place not in before or not _same(now[place][0], before[place][0])
    ]


def tensors_within(roots: list[Any]) -> list[Any] | None:
    """The tensors that objects and Python functions can reach; None if that is too much."""
    found = places(roots)
    if found is None:
        return None
    return [t for _, t in found.values() if isinstance(t, torch.Tensor)]


def foreign(function: Any) -> bool:
    """Whether a function is Python's own, torch's, numpy's or magpy's."""
    return str(function.__module__).partition(".")[0] in FOREIGN


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
    return a is b


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in a piece of code, and in what is defined in it."""
    yield from code.co_names
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _names(c)


def _inside(v: Any, found: Places) -> list[Any]:
    """What an object holds; what of it can be replaced is added to `found`."""
    if isinstance(v, torch.Tensor):
        found[id(v), None] = (_tensor.tensor_version(v),), v
        return []
    if isinstance(v, types.MethodType):
        return [v.__func__, v.__self__]
    if isinstance(v, functools.partial):
        return [v.func, *v.args, *v.keywords.values()]
    if isinstance(v, types.FunctionType):
        return _of_function(v, found)
    if isinstance(v, type):
        if str(v.__module__).partition(".")[0] in ("torch", "builtins"):
            return []
        names = {n: x for n, x in vars(v).items() if not callable(x)}
        found.update({(id(v), n): (x, v) for n, x in names.items()})
        return list(names.values())
    inner: list[Any] = []
    if isinstance(v, dict):
        inner += [x for pair in dict.items(v) for x in pair]
        found.update({(id(v), k): (x, v) for k, x in dict.items(v)})
    elif isinstance(v, (list, tuple, set, frozenset, collections.deque)):
        inner += v
    if inner or isinstance(v, (dict, list, set, collections.deque)):
        found[id(v), None] = tuple(inner), v
    return inner + _of_object(v, found)


def _of_function(function: types.FunctionType, found: Places) -> list[Any]:
    if str(function.__module__).partition(".")[0] == "torch":
        return []
    names = set(_names(function.__code__))
    spaces = [function.__globals__]
    spaces += [
        vars(m)
        for n in names
        if isinstance(m := function.__globals__.get(n), types.ModuleType)
        and m.__name__.partition(".")[0] not in FOREIGN
    ]
    held: list[Any] = []
    for space in spaces:
        of_space = {n: space[n] for n in names if n in space}
        found.update({(id(space), n): (x, space) for n, x in of_space.items()})
        held += of_space.values()
    cells = [c for c in function.__closure__ or () if c != types.CellType()]
    found.update({(id(c), None): (c.cell_contents, c) for c in cells})
    return held + [c.cell_contents for c in cells]


def _of_object(v: Any, found: Places) -> list[Any]:
    """What is in the dict and in the slots of an object."""
    own = getattr(v, "__dict__", None)
    inner: list[Any] = []
    if isinstance(own, dict):
        found.update({(id(own), n): (x, own) for n, x in own.items()})
        inner += own.values()
    if type(v).__flags__ & _HEAP:
        for name in copyreg._slotnames(type(v)):  # type: ignore[attr-defined]
            try:
                x = object.__getattribute__(v, name)
            except AttributeError:
                x = _interp.ABSENT
            found[id(v), name] = x, v
            inner.append(x)
    return inner


def _own(objects: list[Any]) -> Places:
    """What objects hold themselves, in attributes and in containers among these."""
    found: Places = {}
    for v in objects:
        for x in _of_object(v, found):
            if isinstance(x, (dict, list, set, collections.deque)):
                _inside(x, found)
    return found


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


class Below:
    """What unwatched Python changed in the course of a run.

    What it does to objects that the rest of the call looks at cannot be told apart from what the
    call does, and an effect is redone when all else is done.
    """

    def __init__(self, session: Any) -> None:
        """Nothing was changed yet."""
        self._session = session
        # (address of a container, class or globals; name; why a look at that is refused).
        self._changed: list[tuple[int, Any, Refusal]] = []
        self._roots: list[Any] = []
        self._before: Places = {}
        self._entered: set[int] = set()
        self._shallow: list[Any] = []
        # What effects were given, by address.
        self._given: dict[int, Any] = {}

    def by_hooks(self, changed: list[tuple[int, Any]]) -> None:
        """Hooks have changed what is there."""
        refusal = refuse("a hook of gradients changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in changed]

    def begin(self, given: tuple[Any, ...]) -> None:
        """A call for its effect begins, and is given these."""
        self._roots, self._shallow, self._before = [], [], {}
        self._entered.clear()
        self._given.update((id(v), v) for v in given)

    def written_to(self, v: Any) -> bool:
        """Whether an effect was given an object, such as a file, and may have changed it."""
        return id(v) in self._given

    def entered_library(self, given: tuple[Any, ...]) -> None:
        """A function of Python's own or of torch starts below an effect: it changes its objects."""
        new = [v for v in given if id(v) not in self._entered and not isinstance(v, _FIXED)]
        self._entered.update(map(id, new))
        self._shallow += new
        found = _own(new)
        self._before = {**found, **self._before}
        self._given.update((id(v), v) for v, _ in found.values())

    def entered(self, function: types.FunctionType, given: tuple[Any, ...]) -> None:
        """A Python function starts below an effect.

        Raises:
            Refusal: nobody can tell what it changes, or it looks at what the call has changed.
        """
        roots = [v for v in (function, *given) if id(v) not in self._entered]
        self._entered.update(map(id, roots))
        found = places(roots)
        name = f"{function.__module__}.{function.__qualname__}"
        if found is None:
            raise Refusal(f"{name} runs in it, which reaches too many objects")
        self._roots += roots
        changed = self._changed_before(found)
        if changed is not None:
            raise Refusal(f"{name} runs in it, and looks at {changed} that the call has changed")
        self._before = {**found, **self._before}

    def _changed_before(self, found: Places) -> str | None:
        """What of these places the call has changed, or None."""
        session = self._session
        written = {id(cell) for cell, _ in session.written_cells()}
        named = {(id(v), n) for kind, v, n, _ in session.log() if kind.startswith("write_")}
        states = container_states(session)
        olds = {id(v): old for v, old, *_ in session.containers() if states[id(v)] is not None}
        for (holder, key), (now, v) in found.items():
            if holder in written or (holder, key) in named:
                return f"a {type(v).__name__}" if key is None else repr(key)
            old = olds.get(holder)
            if old is None:
                continue
            if key is None or not isinstance(old, dict):
                return f"a {type(v).__name__}"
            if old.get(key, _interp.ABSENT) is not now:
                return repr(key)
        return None

    def done(self, name: str) -> None:
        """The call for its effect is over."""
        now = places(self._roots)
        if now is None:
            raise Refusal(f"{name} runs Python that reaches too many objects")
        found = _differences(self._before, {**_own(self._shallow), **now})
        refusal = refuse(f"{name} runs Python that changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in found]

    def looked_at(self) -> Refusal | None:
        """A refusal where the call looks, at any time, at what they have changed."""
        if not self._changed:
            return None
        looked: set[tuple[int, Any]] = {(id(v), None) for v, *_ in self._session.containers()}
        for kind, v, name, value in self._session.log():
            if kind in ("type_attr", "write_type"):
                looked.update((id(c), name) for c in v.__mro__)
            elif kind == "protocols":
                looked.update((id(c), special) for c in v.__mro__ for special, _ in value)
            elif kind == "list_item":
                looked.add((id(v), None))
            elif kind in ("dict_key", "attr_c", "write_attr"):
                looked.add((id(v), name))
            elif kind == "cell":
                looked.add((id(v), None))
        for place, name, refusal in self._changed:
            if (place, name) in looked:
                return refusal
        return None


__all__ = ["FOREIGN", "Below", "Places", "changed", "foreign", "places", "tensors_within"]
