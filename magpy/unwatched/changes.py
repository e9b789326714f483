"""What a call for its effect changes, and what Python functions can reach.

Owns the comparison of what such a call is given, and goes through, before and after, and telling
whether the watched call looks at what differs; and the walk to the tensors that a function has.
Does not own how one looks into an object (magpy/objects/contents.py), nor what such a call goes
through (magpy/unwatched/listeners.py).  Called by magpy/capture/tensors/recorder.py,
magpy/capture/tensors/opaque_calls.py and magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import array
import collections
import functools
import types
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from magpy.errors import Refusal
from magpy.frames.locations import refuse
from magpy.objects import contents
from magpy.objects.snapshots import container_states, only_fills
from magpy.objects.types import isinstance

# Where something is held, (address of the holder, key), with what is there, and the holder, which
# keeps its address: a key is a name or a dict's key; None stands for all that a holder holds.
Places = dict[tuple[int, Any], tuple[Any, Any]]

_FIXED = (
    *(type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType),
)
#: So many objects are looked at.
_MANY = 5000


def tensors_within(roots: list[Any]) -> list[Any] | None:
    """The tensors that objects and Python functions can reach; None if that is too much."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        v = todo.pop()
        if id(v) in seen or isinstance(v, _FIXED):
            continue
        seen.add(id(v))
        if len(seen) > _MANY:
            return None
        if isinstance(v, torch.Tensor):
            found.append(v)
        else:
            todo += _inside(v)
    return found


def _inside(v: Any) -> list[Any]:
    """What an object holds, or a function names."""
    if isinstance(v, types.MethodType):
        return [v.__func__, v.__self__]
    if isinstance(v, functools.partial):
        return [v.func, *v.args, *v.keywords.values()]
    if isinstance(v, types.FunctionType):
        return _of_function(v)
    if isinstance(v, type):
        space = contents.space(v)
        if contents.package(space.get("__module__", "builtins")) in ("torch", "builtins"):
            return []
        return [x for x in space.values() if not callable(x)]
    return [*contents.elements(v), *_attributes(v).values()]


def _of_function(function: types.FunctionType) -> list[Any]:
    if contents.package(function.__module__) == "torch":
        return []
    names = set(names_in(function.__code__))
    spaces = [function.__globals__]
    spaces += [
        contents.module_dict(m)
        for n in names
        if isinstance(m := function.__globals__.get(n), types.ModuleType)
        and not contents.foreign_module(m)
    ]
    cells = [c.cell_contents for c in function.__closure__ or () if c != types.CellType()]
    return cells + [space[n] for space in spaces for n in names if n in space]


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in a piece of code, and in what is defined in it."""
    yield from code.co_names
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from names_in(c)


def _attributes(v: Any) -> dict[Any, Any]:
    """What is in the dict and in the slots of an object."""
    return {**(contents.own_dict(v) or {}), **contents.slots(v)}


def of_torch(function: Any) -> bool:
    """Whether a function is torch's, numpy's or magpy's, which change nothing of the program's."""
    return contents.package(function.__module__) in ("torch", "numpy", "magpy")


def foreign(function: Any) -> bool:
    """Whether a function is Python's own, or torch's, numpy's or magpy's.

    Of a named tuple `__new__` is what `collections.namedtuple` has written.
    """
    module = function.__module__
    return (
        of_torch(function)
        or contents.of_library(module)
        or (function.__name__ == "__new__" and str(module).startswith("namedtuple_"))
    )


def _differences(before: Places, now: Places) -> list[tuple[int, Any]]:
    return [
        place
        for place in {**before, **now}
        if place not in now or place not in before or not _same(now[place][0], before[place][0])
    ]


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(_is, a, b))
    return a is b


def _is(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is int and a == b)  # versions and checksums


def _content(given: Iterable[Any]) -> Places:
    """What is in containers and buffers, as a whole, and in the attributes of objects."""
    found: Places = {}
    for v in given:
        attributes, own = _attributes(v), contents.own_dict(v)
        found.update({(id(v if own is None else own), n): (x, v) for n, x in attributes.items()})
        for x in (v, *attributes.values()):
            if isinstance(x, (np.ndarray, bytearray, array.array)):
                found[id(x), None] = _checksum(x), x
            elif isinstance(x, _CHANGEABLE):
                found[id(x), None] = tuple(contents.elements(x)), x
    return found


_CHANGEABLE: tuple[Any, ...] = (dict, list, set, collections.deque)


def _checksum(v: Any) -> tuple[int, int]:
    data = v if isinstance(v, bytearray) else v.tobytes()
    return zlib.crc32(data), len(data)


def _new_objects(v: Any, is_outside: Any, depth: int = 4) -> Iterator[int]:
    """The addresses of what arguments hold that is not from outside; of functions, their cells."""
    if contents.leaf(v) or not depth or is_outside(v):
        return
    yield id(v)
    inner: list[Any] = []
    if isinstance(v, types.FunctionType):
        inner = list(v.__closure__ or ())
    elif isinstance(v, contents.CONTAINERS):
        inner = list(contents.elements(v))
    elif contents.made_by_statement(type(v)) and not isinstance(v, (type, torch.Tensor)):
        inner = [*_attributes(v).values(), contents.own_dict(v)]
    for x in inner:
        yield from _new_objects(x, is_outside, depth - 1)


class Below:
    """What calls for their effect changed in the course of a run.

    What they do to objects that the rest of the call looks at cannot be told apart from what the
    call does, and an effect is redone when all else is done.
    """

    def __init__(self, session: Any) -> None:
        """Nothing was changed yet."""
        self._session = session
        # (address of a container, class or globals; name; why a look at that is refused).
        self._changed: list[tuple[int, Any, Refusal]] = []
        # What the effect is given, and goes through, as that was before.
        self._before: Places = {}
        self._objects: tuple[Any, ...] = ()
        # The addresses of objects of the call's own that the effect is given.
        self._own: set[int] = set()
        # Numbers that are inputs where the call reads them, which the log does not tell of.
        self._counted: list[tuple[Any, Any]] = []
        # What effects were given, or went through, by address.
        self._given: dict[int, Any] = {}

    def counted(self, holder: Any, key: Any) -> None:
        """A number is read that becomes an input, which is a look at it, too."""
        whole = isinstance(holder, (list, collections.deque, types.CellType))
        self._counted.append((holder, None if whole else key))

    def begin(self, given: Sequence[Any], through: Sequence[Any]) -> None:
        """A call for its effect begins.

        Args:
            given: what it is given.
            through: the streams, loggers and handlers that it goes through.
        """
        outside = self._session.is_outside
        self._own = {i for v in given for i in _new_objects(v, outside)}
        self._objects = (*given, *through)
        self._given.update((id(v), v) for v in self._objects)
        self._before = _content(self._objects)

    def written_to(self, v: Any) -> bool:
        """Whether an effect may have changed an object, such as a file, that it was given."""
        return id(v) in self._given

    def done(self, name: str) -> None:
        """The call for its effect is over.

        Raises:
            Refusal: it has changed an object of the call's own.
        """
        found = _differences(self._before, _content(self._objects))
        if any(holder in self._own for holder, _ in found):
            raise Refusal(f"{name} changes an object of the call")
        refusal = refuse(f"{name} changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in found]
        self._before, self._objects = {}, ()

    def end(self) -> None:
        """The run is over: lets go of what effects were given."""
        self._before, self._objects, self._given, self._counted = {}, (), {}, []

    def written(self) -> bool:
        """Whether the call has changed anything from outside by now."""
        session = self._session
        if session is None:
            return False
        if any(kind.startswith("write_") for kind, *_ in session.log()):
            return True
        return bool(session.written_cells()) or any(
            state is not None for state in container_states(session).values()
        )

    def only_fills(self) -> bool:
        """Whether it has put something only where nothing was."""
        return self._session is not None and only_fills(self._session)

    def shared(self, objects: set[int]) -> Refusal | None:
        """A refusal if an effect changed objects of C types that the call looks at, by address."""
        return next((r for place, _, r in self._changed if place in objects), None)

    def looked_at(self) -> Refusal | None:
        """A refusal where the call looks, at any time, at what they have changed."""
        if not self._changed:
            return None
        looked = {(id(v), name) for v, name in self._looks()}
        for place, name, refusal in self._changed:
            # Of a container of which the call changes another place, too, it is all told at once.
            if (place, name) in looked or (place, None) in looked:
                return refusal
        return None

    def _looks(self) -> Iterator[tuple[Any, Any]]:
        """Where the call has looked or written: holders, with names or keys, or None for all."""
        for v, *_ in self._session.containers():
            yield v, None
        for v, key in self._counted:
            yield from ((c, key) for c in contents.mro(v)) if isinstance(v, type) else ((v, key),)
        for kind, v, name, value in self._session.log():
            if kind in ("type_attr", "write_type"):
                yield from ((c, name) for c in contents.mro(v))
            elif kind == "protocols":
                yield from ((c, special) for c in contents.mro(v) for special, _ in value)
            elif kind in ("list_item", "value_at", "list_length", "cell"):
                yield v, None
            elif kind in ("dict_key", "attr_c", "write_attr"):
                yield v, name


__all__ = ["Below", "Places", "foreign", "names_in", "of_torch", "tensors_within"]
