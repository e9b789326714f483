"""Steps as text, a line for each."""

import logging
import operator

import pytest
import torch

import magpy
from magpy.ir import printer
from magpy.ir.ops import (
    Bind,
    BindArray,
    Call,
    CheckValue,
    EffectStep,
    ModeStep,
    OpStep,
    OutsideRef,
    Ref,
    Var,
)
from magpy.ir.recipes import Const, Value
from magpy.ir.torch_modes import TorchModes

X, Y, N = map(Var, range(3))


class Loud:
    """A program's object whose own text would run its code."""

    def __repr__(self):
        raise AssertionError("magpy asked an object of the program for its text")


def test_an_operation_has_its_variables_its_effects_and_its_place():
    step = OpStep(torch.Tensor.add_, (Ref(X), 1.5), {"alpha": Ref(N)}, [((), Y)], mutates=True)
    step.writes, step.where = frozenset([X]), "model.py:12 (forward)"
    said = "%1 = Tensor.add_(%0, 1.5, alpha=%2)  [writes %0]  # model.py:12 (forward)"
    assert printer.line(step) == said
    drawn = OpStep(torch.rand, ((2, slice(1, None)),), {}, [((0,), X), ((1,), Y)], random=True)
    assert printer.line(drawn) == "%0, %1 = torch.rand((2, 1::))  [random]"


@pytest.mark.parametrize(
    ("kind", "more", "line"),
    [
        (CheckValue, {"expected": 3}, "check Tensor.item(%0) equals 3"),
        (Bind, {"expected": float, "result": N}, "%2: float = Tensor.item(%0)"),
        (BindArray, {"expected": (), "result": N}, "%2: array () = Tensor.item(%0)"),
        (
            CheckValue,
            {"expected": 3, "arithmetic": ("f.py", 1, "f", {})},
            "check Tensor.item(%0) equals 3  [leaves where numpy would warn]",
        ),
        (Call, {"unrepeatable": True}, "call Tensor.item(%0)  [unrepeatable]"),
    ],
)
def test_what_python_does_between_graphs_says_what_becomes_of_its_result(kind, more, line):
    step = kind(torch.Tensor.item, (Ref(X),), {}, **more)
    assert printer.line(step) == line


def test_objects_of_the_program_are_not_asked():
    step = CheckValue(
        operator.getitem, (OutsideRef(Loud()), Loud()), {}, expected=Loud(), where="f.py"
    )
    line = "check _operator.getitem(<Loud>, <Loud>) equals <Loud>  # f.py"
    assert printer.line(step) == line


def test_effects_and_modes():
    shown = EffectStep(print, [Const("x" * 100), Value(X)], {}, [("f.py", 3, "g", {})])
    modes = ModeStep(TorchModes(False, True, (("cpu", True, torch.bfloat16),), True))
    first, second = printer.text([shown, modes]).splitlines()
    assert first == f"effect builtins.print('{'x' * 59}..., %0)  # f.py:3 (g)"
    assert second == "modes grad=False inference=True autocast(cpu, torch.bfloat16)"


def test_a_log_shows_the_steps_after_each_pass_that_changes_them(monkeypatch, caplog):
    monkeypatch.setattr(magpy.config, "logs", frozenset(["passes"]))

    def f(x):
        y = x.exp()
        return y.sin() if x.sum() > 0 else y

    with caplog.at_level(logging.INFO, "magpy"):
        magpy.compile(f, backend="eager")(torch.ones(2))
    found = [r.getMessage() for r in caplog.records if r.getMessage().startswith("after ")]
    names = [text.partition(":")[0].removeprefix("after ") for text in found]
    assert names == ["the capture", "hoist-checks", "schedule", "build-graphs"]
    line = f.__code__.co_firstlineno + 1
    assert f"%1 = Tensor.exp(%0)  # {__file__}:{line} (f)" in found[0].splitlines()
    assert "%4 = <Segment>(%0)  # segment 0, 2 operations" in found[-1]
