"""A capture as bytes, and again as a capture, about the objects of another process.

What is made of a capture (guard, graphs, mock code) is made again where it is loaded, by the code
that made it the first time: that way nothing needs to be said of how a guard or mock code looks,
and what the guard checks is checked there. What the analysis asked of objects that were there
(`World`) is asked again, and must be answered as it was.

Owns which captures can travel, and the bytes. Does not own how objects are found again
(magpy/saving/places.py), nor the file (magpy/saving/file.py).  Called by magpy/runtime/entry.py
when a call was captured and by magpy/runtime/saved.py when one is loaded.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from magpy import _interp, _tensor
from magpy.guards.analysis import Analysis
from magpy.guards.checks import ABSENT, c_leaf
from magpy.guards.names import thing
from magpy.guards.world import World
from magpy.ir.capture import Capture
from magpy.ir.ops import EffectStep, Fresh, HostStep, OpStep, OutsideRef, Record
from magpy.ir.recipes import AttrEffect, ContainerEffect, Outside
from magpy.objects.types import isinstance
from magpy.saving.places import Mismatch, Places, Rows, Unable, find

_ATOMS = frozenset(
    [*(int, float, complex, bool, str, bytes, type(None), type(...)), type(NotImplemented)]
)
#: By value, unless one is an object of the program: those that magpy has made.
_CONTAINERS = frozenset([tuple, list, dict, set, frozenset, slice, range])
#: Values of torch's that are compared, and not looked for.
_VALUES = frozenset([torch.device, torch.Size])
_HOLDERS = (Outside, OutsideRef, Fresh, ContainerEffect, AttrEffect)
_IR = "magpy.ir."
_OF_CAPTURE = ("log", "result", "effects", "redo", "start_modes", "events")
#: What is asked of a world that only says how objects are, as is compared of each (places.py).
_COMPARED = frozenset(["meta"])


class Portable(NamedTuple):
    """A capture that travels.

    Attributes:
        rows: where the objects are that it is about.
        body: the capture, a pickle in which these stand as the numbers of their rows.
    """

    rows: Rows
    body: bytes


# ------------------------------------------------------------- questions


class Recording(World):
    """Notes what the analysis is answered."""

    def __init__(self) -> None:
        """Nothing was asked."""
        self.answers: list[tuple[str, Any]] = []
        #: What objects of C hold, and these.
        self.held_by: list[tuple[Any, list[Any]]] = []

    def note(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """Notes an answer."""
        self.answers.append((name, answer))
        if name == "held":
            self.held_by.append((args[0], answer))


class Compared(World):
    """Answers as ever, and compares with what was answered where the capture was made.

    Args:
        answers: what a `Recording` has noted.
    """

    def __init__(self, answers: Iterable[tuple[str, Any]]) -> None:
        """Nothing was asked."""
        self.answers: Iterator[tuple[str, Any]] = iter(answers)

    def note(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """Compares an answer.

        Raises:
            Mismatch: it is another one.
        """
        asked, known = next(self.answers, ("", None))
        if asked != name or not _same(known, answer):
            raise Mismatch(f"what a guard asks is answered otherwise ({name.replace('_', ' ')})")


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b) and type(a) in (tuple, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (c_leaf(a) and c_leaf(b) and _interp.leaf_equal(a, b))


def _noting(name: str) -> Any:
    ask = getattr(World, name)

    def noted(self: Any, *args: Any) -> Any:
        answer = ask(self, *args)
        if name == "held":
            answer = list(answer)
        self.note(name, args, None if name in _COMPARED else answer)
        return answer

    return noted


# Each question is one of these; a new one is noted, too.
for _name, _question in list(vars(World).items()):
    if isinstance(_question, types.FunctionType):
        for _cls in (Recording, Compared):
            setattr(_cls, _name, _noting(_name))


# ------------------------------------------------------------- what can travel


def _refuse(capture: Capture, world: Recording) -> None:
    """Refuses what no other process can be told of.

    Raises:
        Unable: there is such.
    """
    record = capture.record
    asked = {name for name, answer in world.answers if answer is not None}
    steps = record.steps
    reasons = {
        "sizes or numbers vary in it": record.symbols is not None
        or record.numbers
        or any(kind == "value_at" for kind, *_ in capture.log),
        "other calls have other modules, functions or generators": capture.instances_vary
        or capture.renewed,
        "its results are differentiated twice": capture.again,
        "it reads or changes gradients": record.gradients
        or any(isinstance(s, HostStep) and s.engine is not None for s in steps),
        "it reads arrays or buffers": capture.arrays or capture.array_inputs or capture.buffers,
        "it depends on objects written in C": capture.opaque
        or capture.memos
        or asked & {"state", "referent", "placement"},
        "it assigns a tensor's data": record.swapped,
        "it takes jagged tensors": record.cached,
        "Python runs unwatched in it": record.unwatched,
        "a transform of torch.func is in it": record.transform_spans,
        "it keeps objects in calls done as a whole": record.kept,
        "it has effects that are redone": any(isinstance(s, EffectStep) for s in steps),
        "it may warn": any(getattr(s, "site", None) is not None for s in steps),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise Unable(reason)
    for step in steps:
        if not isinstance(step, (OpStep, HostStep)):
            continue
        if isinstance(step, HostStep) and (step.owner is not None or step.arithmetic is not None):
            raise Unable("Python computes in it between the graphs")
        func = step.func
        module = str(getattr(func, "__module__", "") or "").partition(".")[0]
        if isinstance(func, types.FunctionType) and module not in ("torch", "magpy"):
            raise Unable(f"a function of the program is part of a graph: {func.__qualname__}")


def _memory(record: Record) -> list[int]:
    """For each tensor from outside the first one that has its memory: graphs go by that."""
    first: dict[int, int] = {}
    owners = [_tensor.storage_id(t) for t in record.inputs.values()]
    return [first.setdefault(m, i) for i, m in enumerate(owners)]


# ------------------------------------------------------------- writing


class _Writer(pickle.Pickler):
    def __init__(self, stream: Any, places: Places) -> None:
        super().__init__(stream, protocol=5)
        self._places = places

    def persistent_id(self, v: Any) -> int | None:
        t = type(v)
        if t in _ATOMS:
            return None
        known = self._places.index.get(id(v))
        if known is not None:
            return known
        if t in _CONTAINERS or t in _VALUES:
            return None
        if t in _HOLDERS and not c_leaf(v.obj):
            self._places.ref(v.obj)  # else a container would go by value
        if t.__module__.startswith(_IR) and dataclasses.is_dataclass(v):
            return None
        return self._places.ref(v)


#: Reads of one value, by the kind of place that it leads to.
_LEADS = {
    "cell": "cell",
    "dict_key": "key",
    "link_dict": "dict",
    "type": "type",
    "type_attr": "class attr",
    "attr_c": "slot",
    "list_item": "item",
}
_KEYLESS = frozenset(["link_dict", "type", "cell"])


def _reads(
    places: Places, kind: str, source: Any, key: Any, value: Any
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The values that a read gave, each with the place that it came from, without the source."""
    if kind in _LEADS:
        keys = () if kind in _KEYLESS else (places.value(key) if kind == "dict_key" else key,)
        yield value, (_LEADS[kind], *keys)
    elif kind == "super":
        yield value, ()
    elif kind == "protocols":
        for name, v in value:
            yield v, ("class attr", name)
    elif kind == "snap" and isinstance(source, dict):
        for k, v in value.items():
            yield v, ("key", places.value(k))
    elif kind == "snap" and isinstance(source, (set, frozenset)):
        for v in key:
            yield v, ()
    elif kind == "snap" and not isinstance(source, bytearray):
        for i, v in enumerate(value):
            yield v, ("item", i)


def _locate(places: Places, log: list[tuple[str, Any, Any, Any]]) -> None:
    """Finds the way to every object of a log.

    What none leads to would go by value where it is a container, and be another one then.

    Raises:
        Unable: there is none to one that was read, or of which something was read.
    """
    for kind, source, key, value in log:
        if c_leaf(source):
            continue
        row = places.ref(source)
        for v, how in _reads(places, kind, source, key, value):
            if v is ABSENT or c_leaf(v):
                continue
            if how:
                places.reach(v, how[0], row, *how[1:])
            places.ref(v)


def freeze(capture: Capture, analysis: Analysis, world: Recording) -> Portable:
    """A capture for another process, before passes change its steps.

    Args:
        capture: what was captured.
        analysis: of its log.
        world: what the analysis was answered.

    Raises:
        Unable: it cannot travel.
    """
    _refuse(capture, world)
    state = capture.state.values()
    if state is None:
        raise Unable("a mode of torch is active in it")
    places = Places(capture.f)
    for v in (*capture.args, *capture.kwargs.values()):
        places.given(v)
    _locate(places, capture.log)
    for holder, held in world.held_by:
        for v in held:
            kind = "class dict" if isinstance(holder, type) else "dict"
            places.reach(v, kind, places.ref(holder))
            places.ref(v)
    for _, answer in world.answers:
        for v in answer if type(answer) is tuple else (answer,):
            if v is not ABSENT and not c_leaf(v) and type(v) is not list:
                places.ref(v)
    for e in capture.effects:
        places.ref(e.obj)
    graph, record = analysis.graph, capture.record
    for v in (*graph.anchored.values(), *(r.obj for r in graph.relative.values())):
        # Tuples may be made by whoever asks; what they hold is anchored, too.
        if v is not ABSENT and not c_leaf(v) and type(v) is not tuple:
            places.ref(v)
    # Of all these the guard has the metadata that they had when the call began.
    tensors = {id(t): t for t in (*record.inputs.values(), *capture.args, *graph.tensors)}
    tensors |= {id(t): t for t in capture.kwargs.values()}
    metas = []
    for key, meta in capture.metas.items():
        if key not in tensors:
            raise Unable("a tensor of its cannot be found again")
        t = tensors[key]
        row = places.rows[places.ref(t)]
        there = find(Rows([row], []), None)[0] if row[0] == "tensor" else t
        if not meta.matches(there):
            raise Unable(f"{thing(t)} was changed, or is of a kind that nothing can stand for")
        metas.append(t)
    body = {
        "args": capture.args,
        "kwargs": capture.kwargs,
        "state": state,
        "metas": metas,
        "record": {
            f.name: getattr(record, f.name)
            for f in dataclasses.fields(Record)
            if f.name not in ("counters", "kept", "numbers", "symbols", "gradients")
        },
        "answers": world.answers,
        "memory": _memory(record),
        **{name: getattr(capture, name) for name in _OF_CAPTURE},
    }
    stream = io.BytesIO()
    try:
        _Writer(stream, places).dump(body)
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        raise Unable(f"it cannot be written: {e}") from e
    return Portable(places.written, stream.getvalue())


# ------------------------------------------------------------- reading


class _Reader(pickle.Unpickler):
    def __init__(self, stream: Any, objects: list[Any]) -> None:
        super().__init__(stream)
        self._objects = objects

    def persistent_load(self, pid: int) -> Any:
        return self._objects[pid]


def thaw(portable: Portable, f: Any) -> tuple[Capture, Compared]:
    """The capture about the objects of this process, and the world for its analysis.

    Args:
        portable: what `freeze` gave.
        f: the callable.

    Raises:
        Mismatch: the program is another one.
    """
    objects = find(portable.rows, f)
    body = _Reader(io.BytesIO(portable.body), objects).load()
    record = Record(**body["record"])
    if _memory(record) != body["memory"]:
        raise Mismatch("other tensors share memory")
    capture = Capture(
        f=f,
        args=body["args"],
        kwargs=body["kwargs"],
        record=record,
        metas={id(t): _tensor.TensorMeta(t) for t in body["metas"]},
        state=_tensor.TorchState.of(body["state"]),
        opaque=[],
        arrays=[],
        buffers=[],
        memos=[],
        **{name: body[name] for name in _OF_CAPTURE},
    )
    return capture, Compared(body["answers"])


__all__ = ["Compared", "Portable", "Recording", "freeze", "thaw"]
