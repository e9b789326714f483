"""Operations done again on tensors of the same forms: what they give is remembered."""

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


def test_layers_that_are_alike_are_done_once(monkeypatch):
    calls = []
    operated = symbols.Symbols._substitute

    def counted(self, v, static):
        calls.append(v)
        return operated(self, v, static)

    monkeypatch.setattr(symbols.Symbols, "_substitute", counted)
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
