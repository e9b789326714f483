"""Numpy arrays among the arguments: what they hold is an input, and what it leads to is eager's."""

import numpy as np
import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.soundness.worlds import case, check_all

CASES = []


def arrays(n=6, size=4, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.normal(size=size).astype(dtype) for _ in range(n)]


FUNCTIONS = {
    "from_numpy": lambda a: torch.from_numpy(a) * 2,
    "as_tensor": lambda a: torch.as_tensor(a, dtype=torch.float64) + 1,
    "tensor": lambda a: torch.tensor(a / 255).float().sum(),
    "arithmetic of numpy": lambda a: torch.from_numpy((a - a.mean()) / (a.std() + 1)),
    "a view": lambda a: torch.from_numpy(a[1:]) + torch.from_numpy(a[:-1]),
    "another dimension": lambda a: torch.from_numpy(a[None, :]).mean(0),
    "parts": lambda a: [torch.from_numpy(p) * 2 for p in np.split(a, 2)],
    "its form": lambda a: (torch.from_numpy(a), a.shape, len(a), a.dtype, a.ndim, a.size),
    "numbers": lambda a: (torch.ones(2) * float(a[0]), a[1].item()),
    "itself": lambda a: (a, torch.from_numpy(a) + 1),
    "computed by numpy alone": lambda a: (a * 2, np.concatenate([a, a])),
}


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_arrays_of_one_form_are_served_by_one_entry(f, backend):
    compiled = magpy.compile(f, backend=backend)
    for a in arrays():
        assert str(compiled(a)) == str(f(a.copy()))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, 5, 0)


@case(CASES)
def an_array_leads_to_other_ways(compile):
    def f(a):
        if a.mean() > 0:
            return torch.from_numpy(a) + 1
        return [torch.full((2,), float(x)) for x in a if x > -1]

    f = compile(f)
    for a in arrays():
        yield f(a)


@case(CASES)
def one_array_changes_between_calls(compile):
    f = compile(lambda a: torch.from_numpy(a) * 2)
    a = np.zeros(3)
    for i in range(4):
        a[1] = i
        yield f(a), a


@case(CASES)
def the_layout_differs(compile):
    f = compile(lambda a: (torch.from_numpy(a) + 1).contiguous())
    a = np.arange(8.0)
    for b in (a, a[:4], a[::2], a[4:], a.reshape(2, 4), a.reshape(2, 4).T, np.arange(8)):
        for _ in range(2):
            yield f(b)


@case(CASES)
def what_is_no_plain_array_of_numbers(compile):
    class Own(np.ndarray):
        def __array_finalize__(self, other):
            self.told = True

    f = compile(lambda a: (np.asarray(a).shape, str(a), type(a).__name__))
    for a in (np.zeros(2), np.zeros(2).view(Own), np.array(["a", "b"]), np.matrix([[1.0]])):
        for _ in range(2):
            yield f(a)


@case(CASES)
def a_result_shares_the_memory_of_the_array(compile):
    f = compile(lambda a: (torch.from_numpy(a), torch.from_numpy(a)[1:], a[1:]))
    for a in arrays(3):
        whole, rest, view = f(a)
        whole[0] = 5
        rest.add_(1)
        view[-1] = 9
        yield a, whole, rest, view


@case(CASES, refused="a tensor is changed that has the memory of an array")
def a_tensor_of_the_array_is_changed(compile):
    def f(a):
        t = torch.from_numpy(a)
        t.clamp_(min=-9)  # changes nothing, in most calls
        if t.sum() > 0:
            return t * 2
        return t

    f = compile(f)
    for a in arrays():
        yield f(a), a
    a[0] = -10
    yield f(a), a


@case(CASES, refused="an array that follows from data is written to")
def the_array_is_written_to(compile):
    def f(a):
        a[0] = 3
        a += 1
        return torch.from_numpy(a) * 2

    f = compile(f)
    for a in arrays():
        yield f(a), a


@case(CASES, refused="a buffer from outside is changed before an operation reads it")
def a_tensor_that_has_its_memory_is_changed(compile):
    def f(a, x):
        before = torch.from_numpy(a) * 2
        x.add_(1)
        return before, torch.from_numpy(a) + 0

    f = compile(f)
    for a in arrays(3):
        yield f(a, torch.zeros(4)), a
    for a in arrays(3):
        yield f(a, torch.from_numpy(a)), a


@case(CASES)
def arrays_share_memory(compile):
    f = compile(lambda a, b: (torch.from_numpy(a), torch.from_numpy(b) + 1))
    a, b = np.arange(3.0), np.arange(4.0)
    for given in ((a, a), (a, b[1:]), (b[1:], b[:3]), (b[:3], b[:3])):
        first, second = f(*given)
        first[0] += 1
        yield first, second, a, b


@case(CASES)
def an_array_is_kept(compile):
    kept = []

    def f(a):
        kept.append(a)
        return torch.from_numpy(a) + len(kept)

    f = compile(f)
    for a in arrays(4):
        result = f(a)
        yield result, kept[-1] is a, kept


@case(CASES)
def its_contents_are_looked_at(compile):
    def f(a):
        return torch.ones(2), 3 in a, bool((a == 1).any()), f"{a}", a.tolist(), sum(a), max(a)

    f = compile(f)
    for a in ([1, 2], [3, 4], [1, 2], [3, 5]):
        yield f(np.array(a))


test_array_arguments = check_all(CASES)


def test_a_view_is_told_from_an_array_that_owns_its_memory():
    def f(a):
        if a.base is not None:
            a = a.copy()
        return torch.from_numpy(a), type(a.base).__name__

    compiled = magpy.compile(f, backend="eager")
    for make in (np.arange, lambda n: np.arange(2 * n)[: int(n)]) * 3:
        given, expected = make(4.0), make(4.0)
        found, wanted = compiled(given), f(expected)
        given[0] = expected[0] = 77
        assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1]
    assert magpy.stats(compiled).hits >= 2
