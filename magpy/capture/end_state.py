"""What a run leaves behind: how outside containers, attributes and cells differ from before.

Owns the description of each change (`ContainerEffect`, `AttrEffect`) and finding them at the end
of a watched run. Does not own the snapshots (csrc/interp/session_state.cpp) nor the code that makes
the changes again (magpy/replay/object_code.py). Called by magpy/capture/session.py.
"""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable
from typing import Any

from magpy.capture.races import OwnChanges
from magpy.capture.rebuild import Builder
from magpy.errors import Refusal
from magpy.frames.call_sites import REGISTRY
from magpy.instrument.key_methods import refuse_if_it_shows
from magpy.ir.ops import identity
from magpy.ir.recipes import AttrEffect, Const, ContainerEffect
from magpy.objects import contents as held
from magpy.objects.hashing import hashes_quietly
from magpy.objects.snapshots import ABSENT, content_of
from magpy.objects.types import isinstance


def _is_input(v: Any, builder: Builder) -> bool:
    """Whether a number or a text is another one in every call."""
    return type(v) in (int, float, complex, str, bytes) and builder.varies(v)


def _same(now: Any, pre: Any, builder: Builder) -> bool:
    """Whether a place holds what it held before, in every call."""
    if _is_input(now, builder) or _is_input(pre, builder):
        return False
    return now is pre or (
        type(now) is type(pre) and type(now) in (int, str, bool, bytes) and now == pre
    )


def _spaces(log: list[tuple[str, Any, Any, Any]]) -> set[int]:
    """The addresses of the dicts of classes in which attributes were set or deleted."""
    classes = {id(cls): cls for kind, cls, _, _ in log if kind == "write_type"}
    return {id(d) for cls in classes.values() for d in gc.get_referents(held.space(cls))}


def end_state(
    session: Any,
    log: list[tuple[str, Any, Any, Any]],
    builder: Builder,
    redone: dict[tuple[int, str], Any],
    reads: list[tuple[str, Any, Any, Any]],
    tables: dict[int, list[tuple[Any, Any]]],
) -> list[ContainerEffect | AttrEffect]:
    """Every change that the run leaves in outside containers, attributes and cells.

    Args:
        session: what watched the run.
        log: what it saw.
        builder: makes the specs.
        redone: values in dicts, by the dict's address and the key, that calls made for their effect
            have put there, and will again.
        reads: gets what of the start the changes rely on, as events of the log.
        tables: what was put at keys that are inputs, in order, into dicts and sets that nobody
            has looked into, by their addresses.
    """
    effects: list[ContainerEffect | AttrEffect] = []
    deleted = _deleted(log)
    # Attributes of a class are set as such: the interpreter keeps what it has found in the dict.
    spaces = _spaces(log)
    found = [held for held in session.containers() if id(held[0]) not in spaces]
    effects += [_table_effect(c[0], tables[id(c[0])], builder) for c in found if id(c[0]) in tables]
    changed = (held for held in found if id(held[0]) not in tables)
    own = OwnChanges(session)
    for obj, pre, whole, appended, unlogged in changed:
        if isinstance(pre, dict):
            pre = pre | _put_again(obj, pre, redone)
        now = own.content(obj, pre, whole or unlogged)
        if isinstance(obj, dict):
            effect = _dict_effect(obj, pre, now, deleted.get(id(obj), []), builder, session)
            if effect is not None and not effect.rebuild:
                reads += _relied_on(effect, session)
        elif isinstance(obj, list):
            effect = _list_effect(obj, pre, now, own.places(obj), builder, session, reads)
        else:
            effect = _container_effect(obj, pre, now, whole, appended, builder, session)
        if effect is not None:
            effects.append(effect)
    for kind, obj, name, old in log:
        if kind == "write_attr":
            if type(obj).__module__.partition(".")[0] == "numpy":
                # It stands for an array, which gives out another one whenever it is asked.
                raise Refusal(f"{name} of a numpy.{type(obj).__name__} is set")
            now = own.at(obj, name, getattr(obj, name, ABSENT))
            if now is not ABSENT and _same(now, old, builder):
                # It may be that what is there cannot be stored at all.
                reads.append(("attr_c", obj, name, old))
            else:
                effects.append(AttrEffect(obj, name, None if now is ABSENT else builder.build(now)))
        elif kind == "write_type":
            now = own.at(obj, name, obj.__dict__.get(name, ABSENT))
            if now is not ABSENT and _same(now, old, builder):
                # A base may have an equal one, too, which is found where this one is gone.
                reads += [("type_attr", obj, name, old), ("type_itself", obj, name, None)]
            else:
                effects.append(AttrEffect(obj, name, None if now is ABSENT else builder.build(now)))
    for cell, _ in session.written_cells():
        try:
            now = cell.cell_contents
        except ValueError:
            now = ABSENT
        now = own.at(cell, None, now)
        effects.append(AttrEffect(cell, None, None if now is ABSENT else builder.build(now)))
    return effects


def _table_effect(
    obj: dict[Any, Any] | set[Any], stores: list[tuple[Any, Any]], builder: Builder
) -> ContainerEffect:
    """The stores of a run in a dict or set, one by one: two keys may be one in another call."""
    if isinstance(obj, set):
        return ContainerEffect(obj, "set", content=[builder.build(k) for k, _ in stores])
    pairs = [(builder.build(k), builder.build(v)) for k, v in stores]
    return ContainerEffect(obj, "dict", stores=pairs)


def _put_again(
    obj: dict[Any, Any], pre: dict[Any, Any], redone: dict[tuple[int, str], Any]
) -> dict[str, Any]:
    """What calls and operations have put into a dict, and will again."""
    put = {k: v for (i, k), v in redone.items() if i == id(obj) and obj.get(k) is v}
    shown = dict.get(obj, REGISTRY)
    if REGISTRY not in pre and type(shown) is dict and "version" in shown:
        put[REGISTRY] = shown  # an operation was the first that warned in this module
    return put


def _deleted(log: list[tuple[str, Any, Any, Any]]) -> dict[int, list[Any]]:
    """The keys that the run has deleted, by the dict's address."""
    found: dict[int, list[Any]] = {}
    for kind, obj, key, _ in log:
        if kind == "dict_del":
            found.setdefault(id(obj), []).append(key)
    return found


def _list_effect(
    obj: list[Any],
    pre: tuple[Any, ...],
    now: tuple[Any, ...],
    places: list[int],
    builder: Builder,
    session: Any,
    reads: list[tuple[str, Any, Any, Any]],
) -> ContainerEffect | None:
    """What becomes of a list: other elements at some places and more at its end, or all of it.

    Args:
        obj: the list.
        pre: what it held.
        now: what it holds.
        places: where the run has stored, one by one: of such a list the length is guarded, and what
            is at these places does not count.
        builder: makes the specs.
        session: what watched the run.
        reads: gets what of the start the changes rely on.
    """
    grown = len(now) >= len(pre)
    moved = [i for i, v in enumerate(pre) if now[i] is not v] if grown else []
    at, tail = [i for i in places if i < len(pre)], now[len(pre) :]
    whole = not (grown and set(moved) <= set(at) and (at or tail))
    if whole:
        session.compare(obj)  # what leaves this as it is may change another content
        at = moved
    changed = [i for i in at if now[i] is not pre[i] and not _same(now[i], pre[i], builder)]
    if not whole:
        # Where it stores what is there already, that must be there again; an input always is.
        left = set(at).difference(changed)
        reads += [("list_item", obj, i, pre[i]) for i in left if not _is_input(pre[i], builder)]
        whole = len(changed) == len(pre)
    if not grown or (whole and 2 * len(changed) > len(pre)):
        return ContainerEffect(obj, "list", content=[builder.build(x) for x in now], rebuild=True)
    if not changed and not tail:
        return None
    stores: list[tuple[Any, Any]] = [(Const(i), builder.build(now[i])) for i in changed]
    return ContainerEffect(obj, "list", stores=stores, content=[builder.build(x) for x in tail])


def _container_effect(
    obj: Any, pre: Any, now: Any, whole: bool, appended: int, builder: Builder, session: Any
) -> ContainerEffect | None:
    if isinstance(obj, collections.deque):
        if appended:
            # All that the run did to it, which never looked into it.
            content = [builder.build(x) for x in now[-appended:]]
            return ContainerEffect(obj, "deque", content=content)
        if len(now) == len(pre) and all(
            a is b or _same(a, b, builder) for a, b in zip(now, pre, strict=True)
        ):
            session.compare(obj)  # what leaves this as it is may change another content
            return None
        head = now[: len(pre)]
        if (
            len(head) == len(pre)
            and all(a is b for a, b in zip(head, pre, strict=True))
            and getattr(obj, "maxlen", None) is None
        ):
            content = [builder.build(x) for x in now[len(pre) :]]
            return ContainerEffect(obj, "deque", content=content)
        session.compare(obj)
        return ContainerEffect(obj, "deque", content=[builder.build(x) for x in now], rebuild=True)
    if isinstance(obj, set):
        if content_of(now) == content_of(pre):
            return None
        now_set, before = list(set.__iter__(now)), set(map(id, pre))
        added = [x for x in now_set if id(x) not in before]
        refuse_if_it_shows((*now_set, *pre))
        here = set(map(id, now_set))
        gone = [x for x in pre if id(x) not in here]
        if gone and (not whole or len(gone) == len(pre)):
            # What it held is not known, or it was emptied.
            content = [builder.build(x) for x in now_set]
            return ContainerEffect(obj, "set", content=content, rebuild=True)
        return ContainerEffect(
            obj,
            "set",
            content=[builder.build(x) for x in added],
            deletes=[builder.build(x) for x in gone],
        )
    if isinstance(obj, bytearray):
        if bytes(now) == pre:
            return None
        return ContainerEffect(obj, "bytearray", content=[builder.build(bytes(now))], rebuild=True)
    return None


def _relied_on(effect: ContainerEffect, session: Any) -> list[tuple[str, Any, Any, Any]]:
    """What the order of a dict relies on: a key whose value is replaced has its place there.

    Were it not there, it would come in the order in which the program stores, which is not known.
    """
    if len(effect.stores) < 2:
        return []
    if not all(map(hashes_quietly, effect.replaced)):
        session.compare(effect.obj)
        return []
    return [("dict_has", effect.obj, key, None) for key in effect.replaced]


def _dict_effect(
    obj: dict[Any, Any],
    pre: dict[Any, Any],
    now: list[tuple[Any, Any]],
    deleted: list[Any],
    builder: Builder,
    session: Any,
) -> ContainerEffect | None:
    """What becomes of a dict, of which the run has deleted keys, and may have stored them again."""
    base = collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict
    if not deleted and len(now) == len(pre):
        # To look for a key may run code of the program's.
        both = zip(now, pre.items(), strict=True)
        if all(a is c and b is d and _same(b, d, builder) for (a, b), (c, d) in both):
            return None
    keys = [*pre, *(k for k, _ in now)]
    # Where to look for a key would run the program's code, the object itself is looked for.
    number: Callable[[Any], Any] = identity if all(map(hashes_quietly, keys)) else id
    held = {number(k): v for k, v in pre.items()}
    holds = {number(k): v for k, v in now}
    moved = {number(k) for k in deleted} & held.keys() & holds.keys()
    deletes = [k for k in pre if number(k) not in holds or number(k) in moved]
    stores = [
        (k, v)
        for k, v in now
        if number(k) not in held or number(k) in moved or not _same(v, held[number(k)], builder)
    ]
    if not deletes and not stores and list(holds) == list(held):
        return None
    if number is id:
        refuse_if_it_shows(keys)
    replay = {number(k): None for k in pre if number(k) in holds and number(k) not in moved}
    for k, _ in stores:
        replay.setdefault(number(k), None)
    if list(replay) == list(holds):
        pairs = [(builder.build(k), builder.build(v)) for k, v in stores]
        return ContainerEffect(
            obj,
            "dict",
            stores=pairs,
            deletes=[builder.build(k) for k in deletes],
            replaced=[k for k, _ in stores if number(k) in held and number(k) not in moved],
        )
    session.compare(obj)
    if base is not dict:
        return ContainerEffect(
            obj,
            "dict",
            stores=[(builder.build(k), builder.build(v)) for k, v in stores],
            deletes=[builder.build(k) for k in deletes],
            orders=[
                [builder.build(k) for k in dict.__iter__(obj)],
                [builder.build(k) for k, _ in now],
            ],
        )
    return ContainerEffect(
        obj,
        "dict",
        content=[(builder.build(k), builder.build(v)) for k, v in now],
        rebuild=True,
    )
