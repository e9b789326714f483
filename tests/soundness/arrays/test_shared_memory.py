"""Writes and looks by way of what has one memory: tensors, views, arrays, and what is made of them.

Owns pairs of one that is written and one that is looked at, before and after, as an effect, as a
number, as a branch that the call takes another way in some call, and as a result.  Does not own
which operations share memory (magpy/capture/tensors/identity.py tells that of each run).
"""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest
import torch

import magpy
from magpy.ir import aliasing
from magpy.ir.ops import BindArray, CheckMetadata, OpStep, Ref, Var

# What makes the names, each of which has the memory of some of the others.
KINDS = {
    "arrays of a tensor": """
        arr = h.t.numpy()
        p = torch.from_numpy(arr)
        q = p.view(-1)
        w = h.t.view(-1)
        d = p.detach()
        u = torch.from_numpy(q.numpy()[:1])
    """,
    "arrays of a result": """
        r = h.t * 1
        arr = r.numpy()
        p = torch.from_numpy(arr)
        q = p.view(-1)
        w = r.view(-1)
        d = p.detach()
        u = torch.from_numpy(q.numpy()[:1])
    """,
    "sizes of data": """
        m = h.t[h.t > 0]
        p = m.reshape(-1)
        q = p.view(-1)
        w = p.contiguous()
        arr = m.numpy()
        d = torch.from_numpy(arr)
        u = w[:1]
    """,
    "a sparse tensor": """
        p = h.s
        q = p._values()
        w = h.v
        d = h.s.detach()
        arr = d._values()
        u = q[:1]
    """,
    "functions of numpy": """
        arr = np.ravel(h.t.numpy())
        p = torch.as_tensor(arr)
        q = torch.from_numpy(np.asarray(p)[::1])
        w = torch.from_numpy(np.reshape(arr, (2, 1)))
        d = torch.from_numpy(np.ascontiguousarray(q.numpy()))
        u = p[:1]
    """,
    "an array from outside": """
        arr = h.a
        p = torch.from_numpy(arr)
        q = p.view(-1)
        w = torch.as_tensor(h.a)
        d = p.detach()
        u = torch.from_numpy(p.numpy()[:1])
    """,
    "storages": """
        p = torch.empty(0).set_(h.t)
        q = p.view(-1)
        w = torch.from_dlpack(h.t)
        d = p.data
        arr = p.numpy()
        u = torch.empty(0).set_(p.untyped_storage(), 1, (1,))
    """,
    "a gradient": """
        p = h.r.grad
        q = p.view(-1)
        w = torch.from_numpy(p.numpy())
        d = p.data
        arr = w.numpy()
        u = p[:1]
    """,
}
NAMES = ("h.t", "arr", "p", "q", "w", "d", "u")
# The number grows with the calls, and goes beyond the bound in one of the later ones.
LOOKS = {
    "values": ("out += [float(Y.sum()), float(Y.sum()) > 3.5, Y * 1]",) * 2,
    "effect": ("print(Y)", "pass"),
    "effect later": ("pass", "print(Y)"),
}


class _Holder:
    def __init__(self):
        self.t = torch.tensor([0.5, 1.0])
        self.v = torch.tensor([0.5, 1.5])
        self.a = np.array([0.5, 1.0], np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.s = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), self.v, (3,))
        self.r = torch.ones(2, requires_grad=True)
        self.r.grad = torch.tensor([0.5, 1.0])

    def seen(self):
        held = (self.t, self.v, self.a, self.s.to_dense(), self.r.grad)
        return [repr(x) for x in held], self.s._values().data_ptr() == self.v.data_ptr()


def _outcomes(kind, written, looked, look, compiled):
    h = _Holder()
    names = {"h": h, "torch": torch, "np": np}
    before, after = (form.replace("Y", looked) for form in LOOKS[look])
    write = f"{written}.mul_(2)" if kind == "a sparse tensor" else f"{written}.__iadd__(1)"
    lines = [*map(str.strip, KINDS[kind].strip().splitlines()), before, write, after]
    body = "".join(f"    {line}\n" for line in ("out = []", *lines, "return out"))
    exec(f"def f():\n{body}", names)
    f = magpy.compile(names["f"], backend="eager") if compiled else names["f"]
    outcomes = []
    for _ in range(4):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                result = list(map(repr, f()))
            except (RuntimeError, ValueError, TypeError) as e:
                result = [type(e).__name__, str(e)]
        outcomes.append((result, printed.getvalue(), h.seen()))
    return outcomes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("written", NAMES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_has_the_memory_of_what_is_written_shows_it(kind, written):
    for looked in NAMES:
        for look in LOOKS:
            eager = _outcomes(kind, written, looked, look, compiled=False)
            assert _outcomes(kind, written, looked, look, compiled=True) == eager, (looked, look)


# ---------------------------------------------------------------- which memories

T, ARRAY, MADE, VIEW, PLAIN = map(Var, range(5))


def _steps():
    return [
        BindArray(torch.Tensor.numpy, (Ref(T),), {}, expected=None, result=ARRAY),
        CheckMetadata(torch.from_numpy, (Ref(ARRAY),), {}, [((), MADE)], expected=None),
        OpStep(torch.Tensor.view, (Ref(MADE), -1), {}, [((), VIEW)]),
        OpStep(torch.mul, (Ref(VIEW), 2), {}, [((), PLAIN)]),
    ]


def test_a_view_of_what_is_made_of_an_array_may_have_the_memory_of_the_tensor_it_came_from():
    found = aliasing.possible(_steps(), {T: 1, MADE: 0, VIEW: 0, PLAIN: 3})
    assert found == {T: {1}, ARRAY: {0, 1}, MADE: {0, 1}, VIEW: {0, 1}, PLAIN: {3}}
    write = OpStep(torch.Tensor.add_, (Ref(VIEW), 1), {}, [], mutates=True)
    assert aliasing.meet(aliasing.changed(write, found), found[T])
    assert not aliasing.meet(aliasing.changed(write, found), found[PLAIN])


def test_the_memory_of_a_tensor_from_outside_without_a_storage_may_be_that_of_any():
    parts = OpStep(torch.Tensor._values, (Ref(T),), {}, [((), MADE)])
    found = aliasing.possible([parts], {T: 0, MADE: 0, PLAIN: 3})
    assert aliasing.meet(found[MADE], found[PLAIN]) and aliasing.meet(found[T], found[PLAIN])
    assert not aliasing.meet(found[T], set())


def test_a_write_to_a_part_of_a_sparse_tensor_from_outside_is_refused():
    h = _Holder()
    f = magpy.compile(lambda: h.s._values().mul_(2), backend="eager")
    f()
    (reason,) = magpy.stats(f).reasons
    assert "what a sparse tensor from outside consists of is changed" in reason


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc], ids=str)
def test_a_sparse_tensor_still_consists_of_the_same_tensors_when_it_is_undone(layout):
    worlds = []
    for compiled in (False, True):
        s = torch.eye(3).to_sparse(layout=layout)
        values = s.values()

        def call(s=s, values=values):
            s.mul_(2)
            return float(values.sum()) > 20, float(s.to_dense().sum())

        f = magpy.compile(call, backend="eager") if compiled else call
        same = [(f(), values.tolist(), s.values().data_ptr() == values.data_ptr()) for _ in "12345"]
        worlds.append(same)
        if compiled:
            assert magpy.stats(f).hits and not magpy.stats(f).reasons
    assert worlds[1] == worlds[0]
