"""Steps that contradict themselves or each other are refused by the name of what is wrong."""

import operator

import pytest
import torch

import magpy
from magpy.errors import InternalError
from magpy.ir.ops import (
    Bind,
    BindArray,
    Call,
    CheckValue,
    EffectStep,
    EngineRun,
    HostStep,
    OpStep,
    Ref,
    Var,
)
from magpy.ir.recipes import Value
from magpy.ir.verify import verify
from magpy.replay import pipeline

X, Y, Z = map(Var, range(3))
STORAGES = {X: 1, Y: 2}


def op(args=(Ref(X),), out=Y, **more):
    return OpStep(torch.sin, args, {}, [((), out)], **more)


def host(kind, outs=(), **more):
    return kind(torch.Tensor.item, (Ref(X),), {}, list(outs), where="f.py:3 (f)", **more)


NUMBER = host(Bind, expected=float, result=Z)


def checked(*steps, needed=(), again=()):
    return verify(steps, [X], needed, STORAGES, again)


def test_steps_in_order_are_accepted():
    steps = [op(), NUMBER, EffectStep(print, [Value(Z)], {}, []), host(CheckValue, expected=1.0)]
    assert checked(*steps, needed=[Y, Z]) == {X, Y, Z}
    assert checked(op(), again=[Y, Z], needed=[Z]) == {X, Y, Z}


def test_what_is_written_may_be_an_array():
    array = host(BindArray, expected=(), result=Z)
    assert Y in checked(array, op(mutates=True, writes=frozenset([Z])))


OUT = [((0,), Y)]
BROKEN = {
    "%2 is used before it is defined": [op((Ref(Z),)), NUMBER],
    "%1 is defined a second time": [op(), op()],
    "%0 is defined a second time": [op(out=X)],
    "%2 is defined a second time": [NUMBER, NUMBER],
    "%2 is used before it is defined: effect": [EffectStep(print, [Value(Z)], {}, [])],
    "%2 is written, and its memory": [
        op(out=Z),
        op(mutates=True, writes=frozenset([Z])),
    ],
    "it writes to variables and changes nothing": [op(writes=frozenset([X]))],
    "its result is a variable, and parts": [host(Bind, OUT, expected=float, result=Z)],
    "its result is not looked at": [host(Call, OUT)],
    "the class of its result is not known": [host(Bind, expected=1.0, result=Z)],
    "a size that follows from sizes has an effect": [
        host(Bind, expected=int, result=Z, symbolic=True, random=True)
    ],
    "autograd's engine adds to gradients": [host(Call, engine=EngineRun(frozenset([1])))],
    "nobody knows what becomes of its result": [host(HostStep)],
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_defect_is_named_with_its_operation(problem):
    with pytest.raises(InternalError, match="f.py|sin|print") as e:
        checked(*BROKEN[problem])
    assert str(e.value).startswith(problem)


def test_what_is_needed_is_there():
    with pytest.raises(InternalError, match="%2 is needed, and no operation defines it"):
        checked(op(), needed=[Z])


def test_a_pass_that_breaks_the_steps_is_named_in_the_call(monkeypatch):
    def loses(low):
        low.record.steps = [s for s in low.record.steps if s.func is not torch.Tensor.sin]

    first = pipeline.PASSES[0]
    broken = (pipeline.Pass("loses-a-step", loses), *pipeline.PASSES)
    monkeypatch.setattr(pipeline, "PASSES", broken)
    monkeypatch.setattr(magpy.config, "verify", True)

    def f(x):
        return x.sin().cos()

    with pytest.raises(InternalError, match="after loses-a-step: %1 is used before"):
        magpy.compile(f, backend="eager")(torch.ones(2))
    monkeypatch.setattr(pipeline, "PASSES", (first, *broken[2:]))
    assert torch.equal(magpy.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))


def test_tests_check_the_steps():
    assert magpy.config.verify
    assert operator.truth(pipeline.passes())
