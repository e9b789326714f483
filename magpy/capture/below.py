"""What Python changes that runs unwatched below a step: hooks in autograd's engine, and effects.

Owns the walk over what Python functions can reach, the comparison of what was there before and
after, and telling whether the call looks at what differs.  Does not own which functions these are:
of a pass of the engine magpy/capture/engine.py tells them, below a call for its effect the frame
evaluation hook does, as they start.  Called by these, magpy/capture/recorder.py and
magpy/capture/handler.py.
"""

from __future__ import annotations

import collections
import contextlib
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
FOREIGN = {"torch", "numpy", "builtins", *sys.stdlib_module_names}

# Where something is held, (address of the holder, key), with what is there, and the holder, which
# keeps its address: a key is a name or a dict's key; None stands for all that a holder holds.
Places = dict[tuple[int, Any], tuple[Any, Any]]

_FIXED = (
    *(type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType),
)
# So many objects are looked at; of those that a function names, the nearest.
_MANY, _NEAR = 5000, 500


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


def of_torch(function: Any) -> bool:
    """Whether a function is torch's, numpy's or magpy's, which change nothing of the program's."""
    return str(function.__module__).partition(".")[0] in ("torch", "numpy", "magpy")


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
    return _contents(v, found) + _of_object(v, found)


def _contents(v: Any, found: Places) -> list[Any]:
    """What is in a container."""
    inner: list[Any] = []
    if isinstance(v, dict):
        inner += [x for pair in dict.items(v) for x in pair]
        found.update({(id(v), k): (x, v) for k, x in dict.items(v)})
    elif isinstance(v, (list, tuple, set, frozenset, collections.deque)):
        inner += next(c for c in _SEQUENCES if isinstance(v, c)).__iter__(v)
    if inner or isinstance(v, (dict, list, set, collections.deque)):
        found[id(v), None] = tuple(inner), v
    return inner


_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)


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


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def named_places(function: types.FunctionType, given: tuple[Any, ...]) -> Places:
    """What a function can look at and change with the names in its code.

    Functions that it calls are not followed: they start themselves.  What is not named, because
    `getattr` is given it, or is far away, is left out.
    """
    found: Places = {}
    names = set(_names(function.__code__))
    every = not names.isdisjoint(("__dict__", "vars", "setattr", "getattr"))
    todo: collections.deque[Any] = collections.deque(given)
    near = set(map(id, given))
    for cell in function.__closure__ or ():
        if cell != types.CellType():
            found[id(cell), None] = cell.cell_contents, cell
            todo.append(cell.cell_contents)
    todo.extend(_named(function.__globals__, names, found))
    seen: set[int] = set()
    while todo and len(seen) < _NEAR:
        v = todo.popleft()
        if id(v) in seen or isinstance(v, _LEAVES):
            continue
        seen.add(id(v))
        if isinstance(v, torch.Tensor):
            found[id(v), None] = (_tensor.tensor_version(v),), v
        if isinstance(v, types.MethodType):
            todo.append(v.__self__)
            continue
        if isinstance(v, types.ModuleType):
            todo.extend(_named(vars(v), names, found))
            continue
        inner = _contents(v, found)
        own = None
        if not isinstance(v, type):
            with contextlib.suppress(AttributeError):
                own = object.__getattribute__(v, "__dict__")
        if isinstance(own, dict):
            all_of_it = every and id(v) in near
            todo.extend(_named(own, set(own) if all_of_it else names, found))
        todo.extend(_of_classes(v, names, found))
        todo.extend(inner)
    return found


def _named(space: dict[Any, Any], names: set[str], found: Places) -> list[Any]:
    of_space = {n: space[n] for n in names if n in space}
    found.update({(id(space), n): (x, space) for n, x in of_space.items()})
    return list(of_space.values())


def _of_classes(v: Any, names: set[str], found: Places) -> list[Any]:
    """What an object has in slots, and its classes (or a class itself and its bases) of these."""
    inner: list[Any] = []
    for c in (v if isinstance(v, type) else type(v)).__mro__:
        for n in names & vars(c).keys() if c.__flags__ & _HEAP else ():
            x = vars(c)[n]
            holder: Any = c
            if isinstance(x, types.MemberDescriptorType) and not isinstance(v, type):
                x, holder = _interp.ABSENT, v
                with contextlib.suppress(AttributeError):
                    x = object.__getattribute__(v, n)
            found[id(holder), n] = x, holder
            inner.append(x)
    return inner


_LEAVES = (
    *(type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device),
    *(types.FunctionType, types.BuiltinFunctionType, types.CodeType),
)


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
        # The functions that started below the effect, with what they were given.
        self._started: dict[tuple[int, ...], tuple[types.FunctionType, tuple[Any, ...]]] = {}
        self._before: Places = {}
        # What the call had changed by then, once somebody wants to know.
        self._written: tuple[set[tuple[int, Any]], dict[int, Any]] | None = None
        # What effects were given, or had in reach, by address.
        self._given: dict[int, Any] = {}

    def by_hooks(self, changed: list[tuple[int, Any]]) -> None:
        """Hooks have changed what is there."""
        refusal = refuse("a hook of gradients changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in changed]

    def begin(self, given: tuple[Any, ...]) -> None:
        """A call for its effect, or a pass of the engine, begins, and is given these."""
        self._started, self._before, self._written = {}, {}, None
        self._given.update((id(v), v) for v in given)

    def written_to(self, v: Any) -> bool:
        """Whether an effect may have changed an object, such as a file, that it was given."""
        return id(v) in self._given

    def entered(self, function: types.FunctionType, given: tuple[Any, ...]) -> None:
        """A Python function starts below an effect, or in autograd's engine.

        Raises:
            Refusal: it looks at what the call has changed.
        """
        key = (id(function), *map(id, given))
        if key in self._started:
            return
        self._started[key] = function, given
        found = named_places(function, given)
        changed = self._changed_before(found)
        if changed is not None:
            name = f"{function.__module__}.{function.__qualname__}"
            raise Refusal(f"{name} runs in it, and looks at {changed} that the call has changed")
        self._before = {**found, **self._before}
        self._given.update((id(v), v) for v, _ in found.values())

    def _changed_before(self, found: Places) -> str | None:
        """What of these places the call has changed, or None."""
        if self._written is None:
            self._written = self._look()
        places, olds = self._written
        for (holder, key), (now, v) in found.items():
            if (holder, key) in places:
                return f"a {type(v).__name__}" if key is None else repr(key)
            old = olds.get(holder)
            if old is None:
                continue
            if key is None or not isinstance(old, dict):
                return f"a {type(v).__name__}"
            if old.get(key, _interp.ABSENT) is not now:
                return repr(key)
        return None

    def _look(self) -> tuple[set[tuple[int, Any]], dict[int, Any]]:
        """Where the call has written, and what containers held that it has changed."""
        session = self._session
        written: set[tuple[int, Any]] = {(id(cell), None) for cell, _ in session.written_cells()}
        written.update((id(v), n) for kind, v, n, _ in session.log() if kind.startswith("write_"))
        states = container_states(session)
        olds = {id(v): old for v, old, *_ in session.containers() if states[id(v)] is not None}
        return written, olds

    def differences(self) -> list[tuple[int, Any]]:
        """Where something is another now than when the functions started that look there."""
        now: Places = {}
        for function, given in self._started.values():
            now.update(named_places(function, given))
        return _differences(self._before, now)

    def done(self, name: str) -> None:
        """The call for its effect is over."""
        if not self._started:
            return
        refusal = refuse(f"{name} runs Python that changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in self.differences()]

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


__all__ = [
    "FOREIGN",
    "Below",
    "Places",
    "changed",
    "named_places",
    "of_torch",
    "places",
    "tensors_within",
]
