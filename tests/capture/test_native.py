"""How the session is connected with the interpreter's part (magpy/capture/python/native.py)."""

import types

import torch

import magpy
from magpy.capture.python import native
from magpy.models import callables
from magpy.models.c_function_tables import Leaf


def test_code_is_instrumented_when_its_counters_cannot_be_told(monkeypatch):
    def program(x):
        return len(x)

    def broken(code):
        raise TypeError("the program replaced what dis needs")

    monkeypatch.setattr(native, "counters", broken)
    twin = native._instrument(program.__code__)
    assert isinstance(twin, types.CodeType)
    assert twin is not program.__code__


def test_a_tensor_method_is_torchs_whichever_class_inherits_it():
    class Tagged(torch.Tensor):
        pass

    t = torch.ones(2).as_subclass(Tagged)
    for f in (t.add_, Tagged.add_, torch.Tensor.add_, torch.ones(2).add_):
        assert callables.classify(f) is Leaf.TORCH


def test_what_torch_makes_at_the_first_call_is_no_reason_for_a_second_capture():
    import torch._dynamo  # else the first call does so, and is left alone

    doubled = torch._disable_dynamo(lambda t: t * 2)

    class Step:
        @torch._disable_dynamo
        def run(self, t, *, more):
            return t + more

    def f(x):
        return doubled(x) + Step().run(x, more=3)

    compiled, x = magpy.compile(f, backend="eager"), torch.arange(3.0)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 3 + 3)
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits) == (1, 2) and stats.share == 1.0
    assert hasattr(doubled.__wrapped__, "__dynamo_disable")
