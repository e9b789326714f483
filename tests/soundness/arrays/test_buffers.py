"""Tensors that share memory with arrays and other buffers (PEP 3118), from outside or of the call.

PYTEST_DONT_REWRITE: what holds an array is counted.
"""

import array

import numpy as np
import pytest
import torch

import magpy
from tests.soundness.worlds import case, check_all

CASES = []


@case(CASES)
def arrays_of_tensors_that_change_afterwards(compile):
    def of_input(t):
        n = t.numpy()
        t.add_(1)
        total = float(n.sum())
        t.mul_(3)
        return total

    def of_result(t):
        t = t + 0
        n = t.numpy()[1:]
        t.add_(1)
        then = n.copy()
        t.view(-1).mul_(3)
        return then, n

    def tensor_of_computed(t):
        n = t.numpy() * 2
        made = torch.from_numpy(n)
        made.add_(1)
        total = float(n.sum())
        made.mul_(2)
        return total, float(n[0])

    for f in (of_input, of_result, tensor_of_computed):
        f = compile(f)
        for _ in range(3):
            yield f(torch.ones(2))


VIEWS = {
    "slice": lambda a: a[1:],
    "reshape": lambda a: a.reshape(3, 1),
    "view": lambda a: a.view(),
    "ravel": np.ravel,
    "split": lambda a: np.split(a, 3)[1],
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (2,), (8,)),
    "capsule": lambda a: np.from_dlpack(a[1:]),
    "rows": lambda a: list(a.reshape(3, 1))[1],
}


@case(CASES, refused="a tensor has the memory of a view of an array from outside")
def tensors_of_views_of_arrays_from_outside(compile):
    for view in VIEWS.values():
        f = compile(lambda a, view=view: torch.from_numpy(view(a)))
        a = np.zeros(3)
        for _ in range(3):
            t = f(a)
        a[1] = 5
        yield t.clone()
        t.view(-1)[0] = 9
        yield t, a


@case(CASES)
def tensors_of_views_of_arrays_from_outside_that_nobody_sees(compile):
    for view in VIEWS.values():
        f = compile(lambda a, view=view: torch.from_numpy(view(a)) * 2)
        a = np.arange(3.0)
        for _ in range(3):
            t = f(a)
            yield t, a
        a[1] = 5
        yield t, f(a)


BUFFERS = {
    "frombuffer": lambda b: torch.from_numpy(np.frombuffer(b, np.uint8)),
    "memoryview": lambda b: torch.from_numpy(np.asarray(memoryview(b))),
    "array": lambda b: torch.from_numpy(np.ndarray((2,), np.uint8, b)),
}


@case(CASES, refused="a tensor has the memory of a view of a buffer from outside")
def tensors_of_views_of_buffers_from_outside(compile):
    for view in BUFFERS.values():
        for buffer in (bytearray(b"abc"), array.array("B", b"abc")):
            f = compile(view)
            for _ in range(3):
                t = f(buffer)
            buffer[1] = 7
            yield t.clone()
            t[0] = 9
            yield t, bytes(buffer)


@case(CASES, refused="a buffer is changed before an operation reads it")
def buffers_that_python_changes_before_an_operation(compile):
    def added(a):
        t = torch.from_numpy(a)
        a += 1
        total = float(t.sum())
        a -= 1
        return total

    def stored(b):
        t = torch.frombuffer(b, dtype=torch.uint8)
        before, b[0] = b[0], 5
        result = t + 0
        b[0] = before
        return result

    def given_out(a):
        t = torch.from_numpy(a)
        np.add(a, 1, out=a)
        result = t * 2
        np.subtract(a, 1, out=a)
        return result

    def first(b):
        b[0] = 5
        return torch.frombuffer(b, dtype=torch.uint8) + 0

    for f, make in (
        (added, lambda: np.ones(2)),
        (stored, lambda: bytearray(b"ab")),
        (given_out, lambda: np.ones(2)),
        (first, lambda: bytearray(b"ab")),
    ):
        f, given = compile(f), make()
        for _ in range(3):
            yield f(given), given, f(make())


@case(CASES)
def buffers_that_python_changes_after_the_operations(compile):
    def f(b):
        t = torch.frombuffer(b, dtype=torch.uint8)
        result = t + 1
        b[0] = 5
        return t, result

    f, b = compile(f), bytearray(b"ab")
    for i in range(4):
        yield f(b), b
        b[1] = i


@case(CASES, refused="an array of the call lives on beside a tensor that has its memory")
def arrays_of_the_call_beside_tensors(compile):
    def both(_):
        n = np.zeros(2)
        return n, torch.from_numpy(n)

    def view(_):
        n = np.zeros(2)
        part = n[1:]
        return part, torch.from_numpy(n)

    def twice(_):
        n = np.zeros(2)
        return torch.from_numpy(n[1:]), torch.from_numpy(n)

    for f in (both, view, twice):
        f = compile(f)
        for _ in range(3):
            found, t = f(0)
            found[0] = 5
            yield found, t


@case(CASES, refused="a view of an array is returned")
def views_of_arrays_of_the_call(compile):
    def dead(_):
        n = np.zeros(2)
        return torch.from_numpy(n) * 2, n[1:]

    f = compile(dead)
    for _ in range(3):
        yield f(0)


@case(CASES)
def arrays_of_the_call_and_results_apart(compile):
    def dead(_):
        n = np.zeros(2)
        return torch.from_numpy(n) * 2, n

    def alone(_):
        n = np.zeros(2)
        return (torch.from_numpy(n),)

    for f in (dead, alone):
        f = compile(f)
        for _ in range(3):
            found = f(0)
            found[0][0] = 5
            yield found


@case(CASES)
def arrays_of_the_call_keep_their_layout(compile):
    def kept(_):
        return np.arange(6.0).reshape(2, 3).T.copy("F") + 1

    def given(_):
        return torch.from_numpy(np.asfortranarray(np.arange(6.0).reshape(2, 3)))

    kept, given = compile(kept), compile(given)
    for _ in range(3):
        yield kept(0), kept(0).strides, given(0), given(0).stride()


test_buffers = check_all(CASES)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_tensor_of_an_array_of_a_tensor_is_that_tensors_memory(backend):
    def changes_the_new_one(t):
        made = torch.from_numpy(t.numpy())
        made.mul_(2)
        return t.clone(), made + 1

    def changes_the_old_one(t):
        made = torch.from_numpy(t.numpy())
        t.mul_(2)
        return made.clone(), t + 1

    def changes_a_view(t):
        made = torch.as_tensor(np.asarray(t.detach()))[1:]
        made[0] = 9
        return t.sum(), made * 1

    for program in (changes_the_new_one, changes_the_old_one, changes_a_view):
        f = magpy.compile(program, backend=backend)
        for i in range(4):
            a, b = (torch.full((3,), float(i)) for _ in range(2))
            wanted, got = program(a), f(b)
            assert [t.tolist() for t in got] == [t.tolist() for t in wanted]
            assert b.tolist() == a.tolist()
