"""magpy beside torch.compile: one around the other, both in turns, and marks for TorchDynamo."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch._dynamo

import magpy


@pytest.fixture(autouse=True)
def forgotten():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _outer(x):
    return x * 2


def test_torch_compile_around_magpy_leaves_it_alone():
    # TorchDynamo is at work in this process, and magpy has called it.
    part = torch.compile(lambda x: x + 1, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        within = magpy.compile(lambda x: part(x), backend="eager")
        assert within(torch.ones(2)).tolist() == [2.0, 2.0]
    inner = magpy.compile(_outer, backend="eager")
    around = torch.compile(inner, backend="eager")
    for i in range(4):
        assert around(torch.full((2,), float(i))).tolist() == [2.0 * i] * 2
    assert magpy.stats(inner).captures == 1
    assert magpy.stats(inner).hits == 3
    assert part(torch.ones(2)).tolist() == [2.0, 2.0]


def test_torch_compile_around_a_module_of_magpys():
    model = magpy.compile(torch.nn.Linear(2, 2), backend="eager")
    around = torch.compile(model, backend="eager")
    x = torch.ones(1, 2)
    for _ in range(3):
        assert torch.equal(around(x), model(x))


def test_both_in_turns_end():
    part = torch.compile(lambda x, n: x * n + 1, backend="eager")
    part(torch.ones(2), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        within = magpy.compile(lambda x, n: part(x, n), backend="eager")
        around = torch.compile(magpy.compile(_outer, backend="eager"), backend="eager")
        for i in range(4):
            assert within(torch.ones(2), i).tolist() == [i + 1.0] * 2
            assert around(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_failure_leaves_torch_compile_at_work():
    def raising(x):
        raise ValueError("no")

    inner = magpy.compile(raising, backend="eager")
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    around = torch.compile(inner, backend="eager")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            around(torch.ones(1))
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1))
    assert len(seen) == 1


MARKS = {
    "static address": lambda t: torch._dynamo.mark_static_address(t),
    "static": lambda t: torch._dynamo.mark_static(t, 0),
    "all static": lambda t: torch._dynamo.mark_static(t),
    "dynamic": lambda t: torch._dynamo.mark_dynamic(t, 0),
    "may be dynamic": lambda t: torch._dynamo.maybe_mark_dynamic(t, [0]),
}


@pytest.mark.parametrize("mark", MARKS)
def test_marks_on_tensors_are_left_in_every_call(mark):
    def f(t):
        MARKS[mark](t)
        return t + 1

    eager = torch.ones(3)
    f(eager)
    c = magpy.compile(f, backend="eager")
    for _ in range(3):
        t = torch.ones(3)
        c(t)
        assert vars(t) == vars(eager)
        assert vars(t)


def test_addresses_of_tensors_whose_sizes_vary_warn_of_nothing():
    def f(x):
        return x.data_ptr() == x.view(-1).data_ptr(), x * 2

    c = magpy.compile(f, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (2, 3, 4, 5):
            same, doubled = c(torch.ones(n))
            assert same
            assert doubled.shape == (n,)
