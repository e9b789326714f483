"""Functions of numpy that write to arrays, some of which follow from data: compiled as eager.

Owns: what is written, by which function, in which order.  Does not own: arrays that share memory
with tensors (`tests/fuzz/regressions`).
"""

from __future__ import annotations

import array

import numpy as np
import pytest
import torch

import magpy
from tests.comparison import assert_same

# `a` follows from data, `b` is made by the call, `o` is outside, `n` is a number that follows from
# data; what the program gives is looked at, and so is what it decides by.
WRITES = """
a += 1
a[0] = 10
a[:1] += n
a.sort()
a.partition(0)
a.fill(3)
a.resize(2)
a.put([0], n)
np.add(a, 1, out=a)
np.add(a, 1, a)
np.add.at(a, [0], 5)
np.add.at(a[::-1], [0], n)
np.add.at(b, [0], n)
np.add(a, 1, out=b)
np.add(a, 1, b)
np.cumsum(a, 0, None, b)
a.cumsum(0, None, b)
a.clip(0, 1, b)
np.clip(a, 0, 3, a[::-1])
np.dot(np.eye(2, dtype=np.float32), a, b)
np.copyto(a, 5)
np.copyto(b, a)
np.put(b, [0], n)
np.putmask(a, a > 0, n)
np.fill_diagonal(a.reshape(2, 1), n)
np.nan_to_num(b, copy=False, nan=n)
np.multiply(n, 2, b)
b += a
b[:] = a
b[0] = a[0]
b.fill(n)
b[int(n) % 2] = 1
np.ravel(a.reshape(1, 2))[0] = 7
np.add(a, 1, out=o)
np.add(n, 1, o)
o[0] = n
o += a
own[0] = n
own[:] = a
own[:1] = [n]
buffer[0] = int(n) % 256
numbers[1] = n
np.copyto(o, a)
np.add.at(o, [1], n)
np.divide(a, 0, out=a)
a.flat[0] = 7
a.flat = 7
a.real = 7
b.flat = n
b.flat[0] = n
b.real = a
o.real = a
o.flat = n
a.shape = (2, 1)
a.T[0] = 7
memoryview(a)[0] = 7.0
memoryview(b)[0] = n
a.data[0] = 7.0
a[...] = n
b[a > 0] = n
a.setfield(7.0, a.dtype)
np.lib.stride_tricks.as_strided(a, (1,))[0] = 7
a.byteswap(inplace=True)
b.__iadd__(n)
o.__iadd__(a)
o.__setitem__(0, n)
np.ndarray.fill(b, n)
list(map(a.__setitem__, [0], [7]))
torch.from_numpy(a).add_(1)
torch.from_numpy(b).fill_(n)
torch.from_numpy(o).copy_(t)
torch.as_tensor(a)[0] = 3
a.resize((1, 2), refcheck=False)
a.setflags(write=False)
np.einsum('i->i', a)[0] = 5
np.take(a, [0], out=b[:1])
np.add.accumulate(a, out=b)
np.add(a, np.ones(3), out=a)
""".strip().splitlines()

PROGRAM = """
def f(t):
    a = (t * 2).numpy()
    n = t.sum().item()
    b = np.zeros(2, dtype=np.float32)
    {line}
    return a, b, 1 if a.sum() > 3 else 2, float(b[0]) + n, t * float(a[0])
"""


class Own(np.ndarray):
    """A class of arrays."""


def world(line, compile):
    names = {"np": np, "torch": torch, "o": np.ones(2, dtype=np.float32)}
    names |= {
        "own": np.ones(2).view(Own),
        "buffer": bytearray(2),
        "numbers": array.array("d", [1, 2]),
    }
    exec(PROGRAM.format(line=line), names)
    f, seen = compile(names["f"]), []
    for v in (0.0, 0.0, 0.0, 1.0, 2.0, 0.5, -1.0, 3.0, -5.0, 0.0):
        try:
            result = f(torch.tensor([v, v / 2]))
        except Exception as error:
            result = error
        seen.append(repr((result, *map(names.get, ("o", "own", "buffer", "numbers")))))
    return seen, f


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", WRITES)
def test_what_numpy_writes_is_written(line):
    wanted, _ = world(line, lambda f: f)
    seen, compiled = world(line, lambda f: magpy.compile(f, backend="eager"))
    assert seen == wanted
    assert magpy.stats(compiled).captures or magpy.stats(compiled).reasons


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", ["a += 1", "np.add(a, 1, out=a)", "a.sort()", "np.copyto(a, 5)"])
def test_a_write_to_what_follows_from_data_is_refused(line):
    _, compiled = world(line, lambda f: magpy.compile(f, backend="eager"))
    assert "array that follows from data" in magpy.stats(compiled).reasons[0]


SHARING = """
y.add_(1)
s = float(a.sum())
a = a[1:]
y.add_(1); s = float(a.sum())
z = torch.from_numpy(a); z.add_(1); s = z
z = y.view(3, 1); a = z.numpy(); y.mul_(2); s = z
s = x.numpy()
s = y[int(a.argmax())]
s = a * 2
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("line", SHARING.strip().splitlines())
def test_an_array_is_the_memory_of_the_very_tensor(line, backend):
    names = {"torch": torch, "np": np}
    body = line.replace("; ", "\n    ")
    exec(
        f"def f(x):\n    y = (x * 2).relu()\n    a = y.numpy()\n    s = None\n    {body}\n"
        "    return y, a, s",
        names,
    )
    compiled = magpy.compile(names["f"], backend=backend)
    for i in range(4):
        seen = []
        for f in (names["f"], compiled):
            x = torch.arange(3.0) + i
            result = f(x)
            result[1][...] = 7  # what shares its memory changes
            seen.append((x, result))
        assert_same(seen[1], seen[0])
    assert magpy.stats(compiled).hits


MADE = """
np.arange(6.0)
np.asfortranarray(np.arange(6.0).reshape(2, 3))
locked(np.arange(6.0))
np.array([1, "a", None, 3, 4, 5], dtype=object)
np.arange(6).reshape(3, 2)
np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
np.frombuffer(bytearray(range(24)), dtype=np.float32)
np.matrix([[1.0, 2.0], [3.0, 4.0]])
np.arange(6.0).reshape(2, 3).T.copy("K")
"""
KEPT = """
(a, a[1:])
a[1:]
(a[::-1], a)
(a.T, a)
(a[:2], a[1:])
(np.broadcast_to(a[:1], (2,) + a[:1].shape), a)
(a, a)
(a.view(), a)
keep(a, a[1:])
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kept", KEPT.strip().splitlines())
def test_arrays_of_the_call_that_share_memory_are_made_again_as_such(kept):
    for made in MADE.strip().splitlines():
        seen = []
        for wrap in (lambda f: f, lambda f: magpy.compile(f, backend="eager")):
            names = {"np": np, "torch": torch, "stored": {}}
            exec(
                "def locked(a):\n    a.flags.writeable = False\n    return a\n"
                "def keep(a, b):\n    stored['a'] = a\n    stored['b'] = b\n    return b\n"
                f"def f(t):\n    a = {made}\n    return t + 1, {kept}\n",
                names,
            )
            f = wrap(names["f"])
            found = []
            for _ in range(4):
                r = f(torch.ones(2))[1]
                held = [*(r if isinstance(r, tuple) else (r,)), *names["stored"].values()]
                shared = [[np.shares_memory(x, y) for x in held] for y in held]
                flags = [(x.flags.writeable, x.strides, x.shape, type(x)) for x in held]
                for x in held:
                    if x.flags.writeable:
                        x[..., 0] = x[..., -1]
                found.append((shared, flags, [x.copy() for x in held]))
            seen.append(found)
        assert_same(seen[1], seen[0], made)
