"""Arrays that follow from data, and memory of theirs that is written or kept by other ways."""

import struct
import types

import numpy as np
import pytest
import torch

import magpy
from tests.comparison import assert_same

WRITES = [
    "n.flat[1] = 7",
    "it = n.flat; it[0] = 9",
    "n.flat = 3",
    "n.data[1] = 7",
    "memoryview(n)[1] = 7",
    "struct.pack_into('f', n, 0, 7.0)",
    "struct.pack_into('f', memoryview(n).cast('B'), 4, 7.0)",
    "for row in n[:, None]: row *= 2",
    "for row in n[:, None]: row[...] = row * 2",
    "n.view(np.int32)[0] = 5",
    "np.frombuffer(n, np.float32)[0] = 5",
    "a = n.flat[0]; n[0] = float(y[0]); made.append((a, n.flat[0]))",
    "m = n[1:]; a = n.flat[1]; m[0] = float(y[0]); made.append((a, n.flat[1]))",
    "a = bytes(n); np.multiply(n, y.numpy(), out=n); made.append((a, bytes(n)))",
    "a = f'{n}'; n *= y.numpy(); made.append((a, f'{n}', repr(n)))",
    "a = n.tolist(); n += y.numpy(); made.append((a, n.tolist()))",
    "a = n.flat[0]; y.mul_(2); made.append((a, n.flat[0]))",
]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("source", ["x.numpy() + 1", "(x + 1).numpy()", "y.numpy()"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_to_an_array_is_written_by_every_call(write, source):
    text = (
        f"def f(x, y):\n    made = []; n = {source}\n    {write}\n    return n, made, x * 2, y + 1"
    )
    space = {"np": np, "struct": struct}
    exec(text, space)

    def world(wrap):
        f, seen = wrap(space["f"]), []
        for i in range(4):
            n, made, *tensors = f(torch.arange(3.0) + i, torch.full((3,), float(i)))
            seen.append((n.tolist(), made, tensors))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend="eager")), world(lambda f: f))


KEPT = [
    "torch.from_numpy(a).numpy()[1:]",
    "torch.from_numpy(a).numpy()",
    "torch.frombuffer(a, dtype=torch.float32).numpy()",
    "torch.from_numpy(a[1:]).numpy()",
    "torch.from_numpy(a)",
    "torch.asarray(a)[::2].numpy()",
    "torch.from_numpy(a).clone().numpy()",
    "a.view()",
    "a[1:].copy()",
]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("made", ["h.b + 1", "h.b.copy()", "x.numpy() + 1", "(x + 1).numpy()"])
@pytest.mark.parametrize("kept", KEPT)
def test_what_shares_memory_with_an_array_that_is_kept_does_so_in_every_call(kept, made):
    space = {"np": np, "torch": torch}
    exec(f"def f(h, x):\n    a = {made}\n    h.a = a\n    return {kept}", space)

    def world(wrap):
        h, f, seen = types.SimpleNamespace(b=np.arange(4.0), a=None), wrap(space["f"]), []
        for i in range(4):
            r = f(h, torch.arange(4.0) + i)
            h.a[2] = 50
            seen.append((np.asarray(r).tolist(), np.shares_memory(np.asarray(r), h.a)))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend="eager")), world(lambda f: f))


HELD = [
    ("[[0, 1], [2, 1]]", "h.m[0][1] = i", "torch.tensor(np.array(h.m))"),
    ("[[0, 1], [2, 1]]", "h.m[0][1] = i", "torch.tensor(h.m)"),
    ("[[[0], [1]]]", "h.m[0][1][0] = i", "np.array(h.m).tolist()"),
    ("{'a': [0, 1], 'b': {'n': 1}}", "h.m['a'][1] = i", "str(h.m)"),
    ("{'a': [0, 1], 'b': {'n': 1}}", "h.m['b']['n'] = i", "h.m['b']['n'], str(h.m)"),
    ("{'a': (0, 1)}", "h.m['a'] = (0, i)", "h.m['a'][1] + 1, str([h.m])"),
    ("[{'n': 1}]", "h.m[0]['n'] = i", "h.m[0]['n'] + 1, repr(h.m), sorted(h.m[0].items())"),
]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize(("held", "change", "way"), HELD)
def test_numbers_that_vary_are_found_in_containers_of_containers(held, change, way):
    def world(wrap):
        space = {"np": np, "torch": torch, "h": types.SimpleNamespace()}
        exec(f"h.m = {held}\ndef f(x):\n    return x * 2, {way}", space)
        f, seen = wrap(space["f"]), []
        for i in (1, 1, 2, 2, 3, 3, 4, 5):
            exec(change, space, {"i": i})
            seen.append(f(torch.ones(1)))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend="eager")), world(lambda f: f))


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize(
    "way",
    [
        "np.may_share_memory(a, t.numpy())",
        "np.shares_memory(t.numpy(), a)",
        "np.may_share_memory(a[:1], t.numpy()[:1])",
        "np.shares_memory(np.asarray(t), a)",
        "np.may_share_memory(a, t)",
        "np.shares_memory(t.numpy(), t.numpy()[1:])",
    ],
)
def test_whose_memory_an_array_has_is_asked_in_every_call(way):
    space = {"np": np}
    exec(f"def f(a, t):\n    return {way}", space)
    compiled = magpy.compile(space["f"], backend="eager")
    a = np.ones(4, np.float32)
    for t in (
        torch.ones(4),
        torch.ones(4),
        torch.from_numpy(a),
        torch.from_numpy(a),
        torch.ones(4),
    ):
        assert compiled(a, t) == space["f"](a, t)


@pytest.mark.parametrize("dtype", ["np.int64", "float", "np.dtype('f8')", "'f8'"])
@pytest.mark.parametrize("name", ["add", "multiply", "minimum"])
def test_a_class_that_is_given_to_a_reduction_of_numpys_is_the_class(name, dtype):
    space = {"np": np}
    exec(f"def f(a):\n    return np.{name}.reduce(a, dtype={dtype})", space)
    compiled = magpy.compile(space["f"], backend="eager")
    for i in range(3):
        assert_same(compiled(np.array([3, 4 + i])), space["f"](np.array([3, 4 + i])))
