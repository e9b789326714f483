"""Numbers that are inputs of an entry, and that Python which runs unwatched counts up.

Owns: counters of every kind (an item, a global, attributes, a slot, a cell) that a `__str__` below
a `print`, a handler of a logger or a hook of gradients changes, and the call reads after it.
"""

from __future__ import annotations

import logging

import pytest
import torch

import magpy

WORLD = """
import logging
import torch
class Box: n = 0
class Slot: __slots__ = ("n",)
st, o, slot, g = {"n": 0}, Box(), Slot(), 0
o.n, slot.n = 0, 0
def cell():
    c = 0
    def inc():
        nonlocal c
        c += 1
    def get(rare):
        nonlocal c
        if rare: c += 1
        return c
    return inc, get
inc, get = cell()
def count():
    COUNT
class Text:
    def __str__(self):
        count()
        return "text"
class Keep(logging.Handler):
    def emit(self, record): count()
text, log = Text(), logging.Logger("counted")
log.addHandler(Keep())
w = torch.ones(1, requires_grad=True)
w.register_hook(lambda g: count())
def f(p, rare=False):
    global g
    EFFECT
    r = LOOK
    RARE
    return p * r
"""

PLACES = {
    "item": ("st['n'] += 1", "st['n']", "if rare: st['n'] += 1"),
    "global": ("global g; g += 1", "g", "if rare: g += 1"),
    "class": ("Box.n += 1", "Box.n", "if rare: Box.n += 1"),
    "attribute": ("o.n += 1", "o.n", "if rare: o.n += 1"),
    "slot": ("slot.n += 1", "slot.n", "if rare: slot.n += 1"),
    "cell": ("inc()", "get(rare)", ""),
}
EFFECTS = {
    "print": "print(text)",
    "log": "log.warning('text')",
    "hook": "(w * p).sum().backward()",
}


def _calls(place, effect, wrap):
    count, look, rare = PLACES[place]
    text = WORLD.replace("COUNT", count).replace("LOOK", look).replace("RARE", rare)
    world: dict = {}
    file = f"<counted {place} {effect}>"
    exec(compile(text.replace("EFFECT", EFFECTS[effect]), file, "exec"), world)
    target = wrap(world["f"])
    return [target(torch.ones(1)).item() for _ in range(6)], target


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("place", PLACES)
def test_the_call_sees_what_was_counted_before_it_looks(place, effect, caplog):
    caplog.set_level(logging.CRITICAL)
    expected, _ = _calls(place, effect, lambda f: f)
    found, target = _calls(place, effect, lambda f: magpy.compile(f, backend="eager"))
    assert expected == [1, 2, 3, 4, 5, 6]
    assert found == expected
    refused = "a backward pass runs" if effect == "hook" else "runs in it"
    # What is printed is the text that the object gives while it is watched.
    assert effect == "print" or any(refused in r for r in magpy.stats(target).reasons)
