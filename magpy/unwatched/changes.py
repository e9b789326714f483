"""What Python changes that runs unwatched below a step: hooks in autograd's engine, and effects.

Owns the walk over what Python functions can reach, the comparison of what was there before and
after, and telling whether the call looks at what differs.  Does not own how one looks into an
object (magpy/objects/contents.py), nor which functions these are: the frame-evaluation hook tells
them as they start, and those of a pass of the engine, which may run on other threads,
magpy/unwatched/autograd.py too.  Called by that, magpy/capture/tensors/recorder.py and
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import operator
import random
import types
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from magpy import _interp, _tensor
from magpy.errors import Refusal
from magpy.frames.locations import refuse
from magpy.ir.trees import tensors
from magpy.objects import buffers, contents
from magpy.objects.snapshots import container_states
from magpy.objects.types import isinstance

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
    return contents.package(function.__module__) in ("torch", "numpy", "magpy")


def foreign(function: Any) -> bool:
    """Whether a function is Python's own, or torch's, numpy's or magpy's."""
    return of_torch(function) or contents.of_library(function.__module__)


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(_is, a, b))
    return a is b


def _is(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is int and a == b)  # versions and checksums


def names_of(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes in a piece of code, and in what is defined in it."""
    known = _names.get(id(code))
    if known is None or known[0] is not code:
        if len(_names) >= _CODES:
            _names.clear()
        known = _names[id(code)] = code, frozenset(_names_in(code))
    return known[1]


# By the address of the code, which is kept with them: its hash is not kept by CPython.
_names: dict[int, tuple[types.CodeType, frozenset[str]]] = {}
_CODES = 2000


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _names_in(c)


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
        if contents.package(contents.space(v).get("__module__", "builtins")) in (
            "torch",
            "builtins",
        ):
            return []
        names = {n: x for n, x in contents.space(v).items() if not callable(x)}
        found.update({(id(v), n): (x, v) for n, x in names.items()})
        return list(names.values())
    return _contents(v, found) + _of_object(v, found)


def _contents(v: Any, found: Places) -> list[Any]:
    """What is in a container."""
    inner: list[Any] = []
    if isinstance(v, dict):
        ordered = isinstance(v, collections.OrderedDict)
        pairs = list((collections.OrderedDict if ordered else dict).items(v))
        inner += [x for pair in pairs for x in pair]
        # The hash of an object is a method of the program.
        found.update({(id(v), k): (x, v) for k, x in pairs if type(k) is str or type(k) is int})
    elif isinstance(v, (list, tuple, set, frozenset, collections.deque)):
        inner += next(c for c in _SEQUENCES if isinstance(v, c)).__iter__(v)
    if inner or isinstance(v, (dict, list, set, collections.deque)):
        found[id(v), None] = tuple(inner), v
    return inner


_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)


def _own_content(given: Iterable[Any]) -> Places:
    """What is in containers and buffers, as a whole."""
    found: Places = {}
    for v in given:
        if isinstance(v, (np.ndarray, bytearray, array.array)):
            found[id(v), None] = _checksum(v), v
        elif isinstance(v, dict):
            found[id(v), None] = (*dict.keys(v), *dict.values(v)), v
        elif isinstance(v, (list, set, collections.deque)):
            found[id(v), None] = (
                tuple(next(c for c in _SEQUENCES if isinstance(v, c)).__iter__(v)),
                v,
            )
    return found


def _checksum(v: Any) -> tuple[int, int]:
    data = v if isinstance(v, bytearray) else v.tobytes()
    return zlib.crc32(data), len(data)


def _of_function(function: types.FunctionType, found: Places) -> list[Any]:
    if contents.package(function.__module__) == "torch":
        return []
    names = names_of(function.__code__)
    spaces = [function.__globals__]
    spaces += [
        contents.module_dict(m)
        for n in names
        if isinstance(m := function.__globals__.get(n), types.ModuleType)
        and not contents.foreign_module(m)
    ]
    inner: list[Any] = []
    for space in spaces:
        of_space = {n: space[n] for n in names if n in space}
        found.update({(id(space), n): (x, space) for n, x in of_space.items()})
        inner += of_space.values()
    return inner + _cells(function, found)


def _of_object(v: Any, found: Places) -> list[Any]:
    """What is in the dict and in the slots of an object."""
    own = contents.own_dict(v)
    inner: list[Any] = []
    if own is not None:
        found.update({(id(own), n): (x, own) for n, x in own.items()})
        inner += own.values()
    slots = contents.slots(v)
    found.update({(id(v), name): (x, v) for name, x in slots.items()})
    inner += slots.values()
    return inner


def named_places(function: types.FunctionType, given: tuple[Any, ...]) -> Places:
    """What a function can look at and change with the names in its code.

    Functions that it calls are not followed: they start themselves.  What is not named, because
    `getattr` is given it, or is far away, is left out.
    """
    found: Places = {}
    names = names_of(function.__code__)
    every = not names.isdisjoint(COMPUTED)
    todo: collections.deque[Any] = collections.deque(given)
    near = set(map(id, given))
    todo.extend(_cells(function, found))
    todo.extend(function.__defaults__ or ())
    todo.extend((function.__kwdefaults__ or {}).values())
    todo.extend(_named(function.__globals__, names, found))
    todo.extend(contents.imported(names))
    near.update(map(id, todo))
    seen: dict[int, Any] = {}
    while todo and len(seen) < _NEAR:
        v = todo.popleft()
        if id(v) in seen or contents.leaf(v):
            continue
        seen[id(v)] = v
        if isinstance(v, torch.Tensor):
            found[id(v), None] = (_tensor.tensor_version(v),), v
        elif isinstance(v, (np.ndarray, bytearray, array.array)):
            found[id(v), None] = _checksum(v), v
        elif isinstance(v, types.FunctionType):
            todo.extend(_named(v.__dict__, names, found))
            continue
        elif isinstance(v, types.BuiltinFunctionType):
            if not isinstance(v.__self__, types.ModuleType):
                todo.append(v.__self__)
            continue
        if isinstance(v, types.ModuleType):
            todo.extend(_named(contents.module_dict(v), names, found))
            continue
        if isinstance(v, (operator.attrgetter, operator.methodcaller)):
            more = frozenset(_names_of_getter(v)) - names
            if more:  # what has been looked at is looked at with these names, too
                names |= more
                todo.extend(seen.values())
                seen.clear()
            continue
        inner = _contents(v, found) + contents.inside(v) + contents.held_by_library(v)
        if isinstance(v, contents.GENERATORS):
            names |= names_of(_code_of(v))
            todo.extend(_of_functions(inner, names, found))
        own = contents.own_dict(v)
        if own is not None:
            all_of_it = every and id(v) in near
            for space in (own, *_of_module(v, own)):
                todo.extend(
                    _named(space, space.keys() if all_of_it else names & space.keys(), found)
                )
        todo.extend(_of_classes(v, names, found))
        todo.extend(inner)
    return found


def _names_of_getter(v: Any) -> Iterator[str]:
    """The names of attributes that an `operator.attrgetter` or `methodcaller` holds."""
    made, args = v.__reduce__()[:2]
    for x in (*args, *(made.args if isinstance(made, functools.partial) else ())):
        if isinstance(x, str):
            yield from x.split(".")


def _of_module(v: Any, own: dict[Any, Any]) -> list[dict[Any, Any]]:
    """The dicts in which the attributes of a `torch.nn.Module` are that its own dict has not."""
    if not isinstance(v, torch.nn.Module):
        return []
    found = [own.get(name) for name in ("_parameters", "_buffers", "_modules")]
    return [d for d in found if isinstance(d, dict)]


def _cells(function: types.FunctionType, found: Places) -> list[Any]:
    cells = [c for c in function.__closure__ or () if c != types.CellType()]
    found.update({(id(c), None): (c.cell_contents, c) for c in cells})
    return [c.cell_contents for c in cells]


def _of_functions(values: Iterable[Any], names: Iterable[str], found: Places) -> Iterator[Any]:
    for f in values:
        if isinstance(f, types.FunctionType):
            yield from _named(f.__globals__, names, found)
            yield from _cells(f, found)


def _code_of(v: Any) -> types.CodeType:
    """The code of a generator, a coroutine or an asynchronous generator."""
    if isinstance(v, types.GeneratorType):
        return v.gi_code
    code: types.CodeType = v.cr_code if isinstance(v, types.CoroutineType) else v.ag_code
    return code


def _named(space: dict[Any, Any], names: Iterable[str], found: Places) -> list[Any]:
    of_space = {n: space[n] for n in names if n in space}
    found.update({(id(space), n): (x, space) for n, x in of_space.items()})
    return list(of_space.values())


def _of_classes(v: Any, names: frozenset[str], found: Places) -> list[Any]:
    """What an object has in slots, and its classes (or a class itself and its bases) of these."""
    inner: list[Any] = []
    for c in contents.mro(v if isinstance(v, type) else type(v)):
        space = contents.space(c)
        for n in names & space.keys() if contents.made_by_statement(c) else ():
            x = space[n]
            holder: Any = c
            if isinstance(x, types.MemberDescriptorType) and not isinstance(v, type):
                x, holder = _interp.ABSENT, v
                with contextlib.suppress(AttributeError):
                    x = object.__getattribute__(v, n)
            found[id(holder), n] = x, holder
            inner.append(x)
    return inner


# What looks at attributes, or sets them, by names that are computed.
COMPUTED = (
    *("__dict__", "vars", "setattr", "getattr", "delattr"),
    *("__setattr__", "__getattribute__", "__delattr__"),
)


def _generators() -> list[Any]:
    """The states of the random generators that everybody shares."""
    state: Any = np.random.get_state()
    with torch._C.DisableTorchFunction():  # no mode of the program hears of it
        own = torch.get_rng_state().tolist()
    return [random.getstate(), state[1].tobytes(), state[2:], own]


def _new_objects(v: Any, is_outside: Any, depth: int = 4) -> Iterator[int]:
    """The addresses of what arguments hold that is not from outside; of functions, their cells."""
    if contents.leaf(v) or not depth or is_outside(v):
        return
    yield id(v)
    inner: list[Any] = []
    if isinstance(v, types.FunctionType):
        inner = list(v.__closure__ or ())
    elif isinstance(v, (dict, list, tuple, set, frozenset, collections.deque)):
        inner = _contents(v, {})
    elif contents.made_by_statement(type(v)) and not isinstance(v, (type, torch.Tensor)):
        inner = _of_object(v, {})
        inner.append(contents.own_dict(v))
    for x in inner:
        yield from _new_objects(x, is_outside, depth - 1)


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
        # What it was given itself, which C code may change where no function starts.
        self._direct: Places = {}
        # What the call had changed by then, once somebody wants to know.
        self._written: tuple[set[tuple[int, Any]], dict[int, Any]] | None = None
        self._drawn: list[Any] = []
        # The addresses of objects of the call's own that the effect is given.
        self._own: set[int] = set()
        # Those of the tensors that it is given, as they are then.
        self._shown: set[int] = set()
        # The memory that it had in reach, and whether it was changed.
        self._memory: list[tuple[buffers.Range, bool]] = []
        # Numbers that are inputs where the call reads them, which the log does not tell of.
        self._counted: list[tuple[Any, Any]] = []
        # What effects were given, or had in reach, by address.
        self._given: dict[int, Any] = {}

    def counted(self, holder: Any, key: Any) -> None:
        """A number is read that becomes an input, which is a look at it, too."""
        whole = isinstance(holder, (list, collections.deque, types.CellType))
        self._counted.append((holder, None if whole else key))

    def by_hooks(self, changed: list[tuple[int, Any]], what: str = "a hook of gradients") -> None:
        """Hooks have changed what is there."""
        refusal = refuse(f"{what} changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in changed]

    def begin(self, given: tuple[Any, ...], bound: Sequence[Any] = ()) -> None:
        """A call for its effect, or a pass of the engine, begins.

        Args:
            given: what it is given.
            bound: containers and generators of which it calls methods of C.

        Raises:
            Refusal: such a generator looks at what the call has changed.
        """
        self._shown = set(map(id, tensors(given)))
        outside = self._session.is_outside if given else bool
        self._own = {i for v in given for i in _new_objects(v, outside)}
        self._started, self._before, self._written = {}, {}, None
        self._direct = _own_content((*given, *bound))
        self._given.update((id(v), v) for v in given)
        for v in bound:
            if isinstance(v, contents.GENERATORS):
                for f in contents.inside(v):
                    if isinstance(f, types.FunctionType):
                        self.entered(f, (v,))

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
        if not self._started:
            self._drawn = _generators()
        self._started[key] = function, given
        found = named_places(function, given)
        self._refuse_changed(function, found)
        self._before = {**found, **self._before}
        self._given.update((id(v), v) for v, _ in found.values())

    def entered_whole(self, function: types.FunctionType, given: tuple[Any, ...]) -> None:
        """A Python function starts below a call that is done as a whole, which is watched.

        Raises:
            Refusal: it looks at what the call has changed.
        """
        if self._written is None:
            self._written = self._look()
        key = (id(function), *map(id, given))
        if not any(self._written) or key in self._started:
            return
        self._started[key] = function, given
        self._refuse_changed(function, named_places(function, given))

    def end_whole(self) -> None:
        """That call is over: what its functions were given dies as in eager."""
        self._started, self._written = {}, None

    def end(self) -> None:
        """The run is over: lets go of what ran below its steps, which may refer to the run."""
        self.begin(())
        self._given, self._counted = {}, []

    def _refuse_changed(self, function: types.FunctionType, found: Places) -> None:
        changed = self._changed_before(found)
        if changed is not None:
            name = f"{function.__module__}.{function.__qualname__}"
            raise Refusal(f"{name} runs in it, and looks at {changed} that the call has changed")

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

    def differences(self, effect: bool = False) -> list[tuple[int, Any]]:
        """Where something is another now than when the functions started that look there."""
        now: Places = {}
        for function, given in self._started.values():
            now.update(named_places(function, given))
        found = _differences(self._before, now)
        for place, (_, v) in self._before.items():
            at: buffers.Range | None = None
            if isinstance(v, np.ndarray):
                at = buffers.of_buffer(v)
            elif isinstance(v, torch.Tensor) and effect and id(v) not in self._shown:
                # The engine, on the other hand, runs again at its place.
                at = buffers.of_tensor(v)
            if at is not None:
                self._memory.append((at, place in found))
        return found

    def done(self, name: str) -> None:
        """The call for its effect is over.

        Raises:
            Refusal: random numbers were drawn, which at replay come after those of the call.
        """
        if self._started:
            self._done_by_python(name)
        direct = _differences(self._direct, _own_content([v for _, v in self._direct.values()]))
        if any(id(self._direct[place][1]) in self._own for place in direct):
            raise Refusal(f"{name} changes an object of the call")
        refusal = refuse(f"{name} changes an object that the call looks at")
        self._changed += [(*place, refusal) for place in direct]
        self._direct = {}

    def _done_by_python(self, name: str) -> None:
        if self._drawn != _generators():
            raise Refusal(f"{name} runs Python that draws random numbers")
        refusal = refuse(f"{name} runs Python that changes an object that the call looks at")
        found = self.differences(effect=True)
        if any(id(v) in self._own for v in map(self._holder, found)):
            raise Refusal(f"{name} runs Python that changes an object of the call")
        self._changed += [(*place, refusal) for place in found]

    def _holder(self, place: tuple[int, Any]) -> Any:
        return self._before.get(place, (None, None))[1]

    def shared(
        self,
        objects: set[int],
        looked: list[buffers.Range | None],
        written: list[buffers.Range | None],
    ) -> Refusal | None:
        """A refusal if Python of that kind changed memory that the call looks at.

        Also if it may look at memory that the call writes, which at replay is done by then.

        Args:
            objects: the addresses of objects of C types that the call looks at.
            looked: the memory that it looks at.
            written: the memory that it writes.
        """
        for place, _, refusal in self._changed:
            if place in objects:
                return refusal
        for at, changes in self._memory:
            if any(buffers.meet(at, m) for m in written) or (
                changes and any(buffers.meet(at, m) for m in looked)
            ):
                return Refusal(
                    "Python code that torch or C code calls, such as a hook or a __format__, uses "
                    "tensors or arrays that the call has changed or reads later"
                )
        return None

    def looked_at(self) -> Refusal | None:
        """A refusal where the call looks, at any time, at what they have changed."""
        if not self._changed:
            return None
        looked = {(id(v), name) for v, name in self.looks()}
        for place, name, refusal in self._changed:
            # Of a container of which the call changes another place, too, it is all told at once.
            if (place, name) in looked or (place, None) in looked:
                return refusal
        return None

    def looks(self) -> Iterator[tuple[Any, Any]]:
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
            elif kind in ("list_item", "cell"):
                yield v, None
            elif kind in ("dict_key", "attr_c", "write_attr"):
                yield v, name


__all__ = [
    "COMPUTED",
    "Below",
    "Places",
    "changed",
    "foreign",
    "named_places",
    "names_of",
    "of_torch",
    "places",
    "tensors_within",
]
