"""Operations done again on tensors of the same forms: what they give is remembered."""

import pytest
import torch
from torch import nn

import magpy
from magpy.ir.capture import Dims
from magpy.ir.ops import Ref, Var
from magpy.shapes import symbols
from magpy.shapes.symbols import Symbols
from tests.comparison import assert_same


def of(*shapes, **how):
    """Symbols of tensors whose first dimensions vary."""
    made = [torch.zeros(s, **how) for s in shapes]
    found = Symbols({id(t): Dims(1) for t in made})
    for i, t in enumerate(made):
        found.tensor(Var(i), t)
    return found


def unknown(var):
    raise AssertionError(f"nobody knows the tensor of variable {var}")


def done(found, func, *args, **kwargs):
    return found.operation(func, args, kwargs, unknown)


def test_an_operation_on_the_same_form_gives_the_same():
    found = of((5, 4))
    first = done(found, torch.mul, Ref(Var(0)), 2.0)
    assert done(found, torch.mul, Ref(Var(0)), 2.0) is first
    found.note(Var(1), first)
    second = done(found, torch.mul, Ref(Var(1)), 2.0)
    assert done(found, torch.mul, Ref(Var(0)), 2.0) is second  # of one form


def test_other_sizes_strides_arguments_and_modes_give_something_else():
    found = of((5, 4), (5, 4))
    first = done(found, torch.mul, Ref(Var(0)), 2)
    assert done(found, torch.mul, Ref(Var(1)), 2) is not first  # of another size
    for other in (2.0, True, 3):
        assert done(found, torch.mul, Ref(Var(0)), other) is not first
    found.note(Var(2), done(found, torch.Tensor.double, Ref(Var(0))))
    assert done(found, torch.mul, Ref(Var(2)), 2).dtype is torch.float64
    found.note(Var(3), done(found, torch.t, Ref(Var(0))))
    assert done(found, torch.mul, Ref(Var(3)), 2).shape[0] == 4
    with torch.autocast("cpu", torch.bfloat16):
        assert done(found, torch.matmul, Ref(Var(0)), Ref(Var(3))).dtype is torch.bfloat16
    assert done(found, torch.matmul, Ref(Var(0)), Ref(Var(3))).dtype is torch.float32


def test_what_changes_a_tensor_leaves_others_of_its_form_alone():
    found = of((5, 4))
    for i in (1, 2):
        found.note(Var(i), done(found, torch.neg, Ref(Var(0))))
    assert found.fakes[1] is found.fakes[2]
    done(found, torch.Tensor.t_, Ref(Var(1)))
    assert found.given[1].shape[0] == 4
    assert found.fakes[2].shape[1] == 4
    done(found, torch.Tensor.requires_grad_, Ref(Var(2)))
    assert not done(found, torch.neg, Ref(Var(0))).requires_grad


@pytest.fixture
def calls(monkeypatch):
    """The arguments of the operations that were done with fake tensors."""
    found = []
    operated = symbols.Symbols._substitute

    def counted(self, v, *others):
        found.append(v)
        return operated(self, v, *others)

    monkeypatch.setattr(symbols.Symbols, "_substitute", counted)
    return found


def test_layers_that_are_alike_are_done_once(calls):
    counts = []
    for n in (1, 8):
        net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(n)))
        c = magpy.compile(lambda x, net=net: net(x), backend="eager")
        for rows in (3, 5, 7):
            x = torch.randn(rows, 4)
            assert_same(c(x), net(x))
        assert (magpy.stats(c).captures, magpy.stats(c).hits) == (2, 1)
        counts.append(len(calls))
        calls.clear()
    assert counts[1] <= counts[0] + 4  # the first layer's input requires no grad


class Cache:
    """What a layer has kept of earlier calls."""

    def __init__(self):
        self.keys = torch.ones(2, 3, 4)


@pytest.mark.parametrize("kind", ["object", "list", "dict"])
def test_layers_with_a_cache_each_are_done_once(calls, kind):
    def f(x, caches):
        for i in range(len(caches)):
            kept = caches[i].keys if kind == "object" else caches[i]
            kept = torch.cat([kept, x], 1)
            if kind == "object":
                caches[i].keys = kept
            else:
                caches[i] = kept
            x = torch.softmax(x @ kept.mT, -1) @ kept
        return x

    def made(n):
        if kind == "object":
            return [Cache() for _ in range(n)]
        tensors = [torch.ones(2, 3, 4) for _ in range(n)]
        return dict(enumerate(tensors)) if kind == "dict" else tensors

    counts = []
    for n in (1, 8):
        c, ours, theirs = magpy.compile(f, backend="eager"), made(n), made(n)
        for i in range(6):
            x = torch.full((2, 1, 4), i / 8)
            assert_same(c(x, ours), f(x, theirs))
        assert (magpy.stats(c).captures, magpy.stats(c).hits) == (2, 4)
        counts.append(len(calls))
        calls.clear()
    # The first layer asks what the others know by then.
    assert counts[1] <= 2 * counts[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "order", [((3, 3), (5, 5), (6, 6), (4, 7), (7, 4)), ((3, 4), (5, 5), (6, 6), (7, 4), (2, 2))]
)
def test_rows_that_are_equally_large_by_chance(backend, order):
    def f(tensors):
        return [t.sum(0) / t.shape[0] for t in tensors], torch.cat(tensors).view(-1, 2).shape

    c = magpy.compile(f, backend=backend)
    for sizes in (*order, (8, 9), (9, 9), (1, 3), (3, 1)):
        tensors = [torch.arange(4.0 * n).view(n, 4) for n in sizes]
        assert_same(c(tensors), f(tensors), tol=0 if backend == "eager" else 1e-6)
    # One for the sizes of the first call, one for equal ones, one for all; two for a size of 1.
    assert magpy.stats(c).captures <= 5
    assert magpy.stats(c).eager_calls == 0
