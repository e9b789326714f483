"""Random programs over guarded objects: the cheap test must say what the precise one says.

Owns: the comparison of `Guard.check` (stamps, watchers, re-arming) with `Guard.explain` (every
check precisely) after each of many random changes.  Does not own: single checks
(`test_guards.py`).
"""

from __future__ import annotations

import collections
import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from magpy import _interp

NAMES = ("a", "b", "c", "d")


class Base:
    a: Any = 0


class Thing(Base):
    def __init__(self, rng: random.Random) -> None:
        for name in rng.sample(NAMES, 3):
            setattr(self, name, rng.randrange(3))


class Small(Base):
    b: Any = 1


class World:
    """Objects of every anchored kind, ways to change them, and guards on their present state."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.things = [Thing(rng) for _ in range(4)]
        self.dicts: list[dict[Any, Any]] = [
            {name: rng.randrange(3) for name in NAMES},
            collections.OrderedDict((name, rng.randrange(3)) for name in NAMES),
            collections.defaultdict(int, a=1),
            {},
            *(t.__dict__ for t in self.things[:2]),
        ]
        self.lists: list[list[int]] = [[1, 2, 3], []]
        self.classes = [Base, Thing, Small]
        self.guards: list[_interp.Guard] = []

    def value(self) -> int:
        return self.rng.randrange(3)

    def change(self) -> None:
        rng = self.rng
        d, name, t = rng.choice(self.dicts), rng.choice(NAMES), rng.choice(self.things)
        cls, items = rng.choice(self.classes), rng.choice(self.lists)
        changes: list[Callable[[], Any]] = [
            lambda: d.__setitem__(name, self.value()),
            lambda: d.pop(name, None),
            lambda: d.update({name: self.value(), "new": 1}),
            lambda: d.setdefault(name, self.value()),
            lambda: d.popitem() if d else None,
            lambda: d.clear() if rng.random() < 0.1 else None,
            lambda: isinstance(d, collections.OrderedDict) and d and d.move_to_end(next(iter(d))),
            lambda: d.__setitem__(rng.randrange(100), 1),
            lambda: setattr(t, name, self.value()),
            lambda: delattr(t, name) if name in vars(t) else None,
            lambda: setattr(t, "more" + name, 1),
            lambda: setattr(t, "__dict__", {name: 1}) if rng.random() < 0.1 else None,
            lambda: setattr(t, "__class__", rng.choice((Thing, Small))),
            lambda: setattr(cls, name, self.value()),
            lambda: delattr(cls, name) if name in vars(cls) else None,
            lambda: items.append(self.value()),
            lambda: items.pop() if items else None,
            gc.collect if rng.random() < 0.01 else lambda: None,
        ]
        rng.choice(changes)()

    def guard(self) -> _interp.Guard:
        """A guard on a random part of the world as it is now."""
        rng, absent = self.rng, _interp.ABSENT
        mode = ("is", "leaf")
        dicts = rng.sample(self.dicts, 3)
        objects = rng.sample(self.things, 2)
        classes = rng.sample(self.classes, 2)
        names = rng.sample(NAMES, 2)
        return _interp.Guard(
            0,
            (),
            0,
            [],
            {
                "dicts": [
                    (d, [(n, d.get(n, absent), rng.choice(mode)) for n in names]) for d in dicts
                ],
                "dict_keys": [(d, tuple(d)) for d in rng.sample(self.dicts, 1)],
                "inst_dicts": [(o, o.__dict__) for o in objects],
                "objtypes": [(o, type(o)) for o in objects],
                "types": [(c, [(n, getattr(c, n, absent)) for n in names]) for c in classes],
                "supers": [(Thing, Thing, n, getattr(Base, n, absent)) for n in names],
                "lists": [(items, tuple(items)) for items in self.lists],
            },
        )


@pytest.fixture(autouse=True)
def classes_as_they_were() -> Any:
    before = [(c, {n: vars(c)[n] for n in NAMES if n in vars(c)}) for c in (Base, Thing, Small)]
    yield
    for c, names in before:
        for n in NAMES:
            if n in vars(c):
                delattr(c, n)
        for n, value in names.items():
            setattr(c, n, value)


@pytest.mark.parametrize("seed", range(20))
def test_cheap_and_precise_checks_agree(seed: int) -> None:
    world = World(seed)
    outcomes = collections.Counter[bool]()
    for _ in range(2000):
        if world.rng.random() < 0.2:
            world.guards.append(world.guard())
            world.guards = world.guards[-8:]
        for _ in range(world.rng.randrange(3)):
            world.change()
        for g in world.guards:
            # The cheap test first, so that it cannot profit from what the precise one saw.
            cheap = g.check(())
            why = g.explain(())
            assert cheap == (why is None), why
            outcomes[cheap] += 1
    assert min(outcomes[True], outcomes[False]) > 500
