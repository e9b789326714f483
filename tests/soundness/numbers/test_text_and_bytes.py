"""Text and bytes that differ from call to call: inputs, wherever a program passes them on.

Each line is called with other text, and with other bytes, alone and before a refused line.
"""

import dataclasses
import os
import threading

import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt


@dataclasses.dataclass
class Request:
    """What a program keeps of a request."""

    body: object
    size: int = 0


class Kept:
    """What a program keeps from call to call."""

    def __init__(self):
        self.last, self.all, self.by_key, self.seen = None, [], {}, set()


def kept_as(k, v):
    k.last = v
    return k.last


def kept_in_order(k, v):
    k.all.append(v)
    k.all[0] = v
    return list(k.all)


def kept_by_key(k, v):
    k.by_key["last"] = v
    k.by_key[v] = len(v)
    return dict(k.by_key)


def seen_before(k, v):
    known = v in k.seen
    k.seen.add(v)
    return known, sorted(k.seen)


def in_an_object(k, v):
    k.last = Request(v, len(v))
    return k.last.body, k.last.size


def raised(k, v):
    if len(v) > 43:
        raise ValueError(v)
    return v


def in_a_closure(k, v):
    def given():
        return v

    return given(), (lambda: v)()


LINES = {
    "returned": lambda k, v: v,
    "in a list": lambda k, v: [v],
    "in a tuple": lambda k, v: (v, (v, 1)),
    "in a dict": lambda k, v: {"a": v, "b": [v]},
    "as a key": lambda k, v: {v: 1},
    "in a set": lambda k, v: {v},
    "length": lambda k, v: (len(v), v),
    "part": lambda k, v: (v[2:5], v[-1:], v[::2]),
    "one": lambda k, v: v[3],
    "joined": lambda k, v: v + v[:1],
    "repeated": lambda k, v: v * 2,
    "replaced": lambda k, v: v.replace(v[:1], v[1:2]),
    "split": lambda k, v: v.split(v[2:3]),
    "parted": lambda k, v: v.partition(v[4:5]),
    "upper": lambda k, v: v.upper(),
    "compared": lambda k, v: (v == v[:-1], v > v[:3], v != v),
    "contained": lambda k, v: v[:2] in v,
    "formatted": lambda k, v: f"{v!r}:{len(v)}",
    "percent": lambda k, v: "%r %s" % (v, len(v)),  # noqa: UP031
    "counted": lambda k, v: v.count(v[:1]),
    "hash": lambda k, v: hash(v) == hash(v),
    "copied": lambda k, v: (type(v)(v), [*v][:3]),
    "unpacked": lambda k, v: {**{"a": v}, "b": v[:1]},
    "sorted": lambda k, v: sorted([v, v[:3]]),
    "array": lambda k, v: len(bytearray(v)) if type(v) is bytes else v.encode(),
    "decoded": lambda k, v: v.decode() if type(v) is bytes else v.encode(),
    "kept": kept_as,
    "kept in order": kept_in_order,
    "kept by key": kept_by_key,
    "seen": seen_before,
    "in an object": in_an_object,
    "raised": raised,
    "closure": in_a_closure,
}


def alone(line, k, x, v):
    return line(k, v), x + 1


def before_a_refused_line(line, k, x, v):
    y = x + 1
    r = line(k, v)
    open(os.devnull).close()
    return r, y.relu(), v


@pytest.mark.parametrize("around", [alone, before_a_refused_line])
@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("name", LINES)
def test_what_is_passed_on_is_that_of_the_call(name, kind, around, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)

    def world(compile):
        k, line = Kept(), LINES[name]
        f = compile(lambda x, v: around(line, k, x, v))
        for i in range(8):
            text = f"request {i * i}: " + "abcdefghijklmnop"[i:] * (1 + i % 3)
            v = text if kind is str else text.encode()
            yield attempt(f, torch.full((2,), float(i)), v), vars(k)

    wanted = list(map(repr, world(lambda f: f)))
    got = list(map(repr, world(lambda f: magpy.compile(f, backend="eager"))))
    assert_same(got, wanted)


@pytest.mark.parametrize("kind", [str, bytes])
def test_what_is_kept_may_be_changed_between_calls(kind):
    def given(text):
        return text if kind is str else text.encode()

    kept, end = Kept(), given("!")

    def f(x, v):
        before = kept.last
        kept.last = v + end
        return before, x + len(v)

    kept.last = given("")
    compiled = magpy.compile(f, backend="eager")
    for i in range(10):
        if i == 6:
            kept.last = given("from outside")
        v, expected = given("x" * i), kept.last
        before, y = compiled(torch.ones(1), v)
        assert before == expected
        assert kept.last == v + end
        assert torch.equal(y, torch.full((1,), 1.0 + i))


def test_threads_get_their_own_bytes():
    compiled = magpy.compile(lambda x, v: (v, x.relu()), backend="eager")
    found = []

    def work(t):
        found.extend(compiled(torch.ones(2), b"%d-%d" % (t, i))[0] for i in range(50))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(b"%d-%d" % (t, i) for t in range(4) for i in range(50))
