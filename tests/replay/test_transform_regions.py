"""Steps of transformed functions, written by hand, as one operation."""

import operator
from dataclasses import replace

import pytest
import torch

import magpy
from magpy.capture.tensors.functorch import Span
from magpy.errors import Refusal
from magpy.ir.ops import Bind, ModeStep, OpStep, Record, Ref, Var, Wrapped
from magpy.ir.torch_modes import current_modes
from magpy.replay.passes import transform_regions

X, Y, INNER, OUTER, N, M = map(Var, range(6))


def op(func, args, out, **more):
    return OpStep(func, args, {}, [((), out)], **more)


def number(func, args, result=None, expected=int):
    return Bind(func, args, {}, expected=expected, where="file.py:3 (f)", result=result)


def record(*steps, types=()):
    storages = {X: 1, Y: 2, INNER: 0, OUTER: 3}
    return Record(
        list(steps),
        {X: None, Y: None},
        nvars=6,
        storages=storages,
        types=dict.fromkeys(types, Wrapped),
    )


def collapsed(r, *spans):
    transform_regions.collapse(r, list(spans), current_modes())
    return r.steps


ENTER, LEAVE = op(torch.sin, (Ref(X),), INNER), op(torch.cos, (Ref(INNER),), OUTER)


def test_one_step_is_done_from_the_beginning_to_the_end():
    (step,) = collapsed(record(ENTER, LEAVE), Span(0, 2))
    assert step.args == (Ref(X),)
    assert step.outs == [((0,), INNER), ((1,), OUTER)]
    assert not step.mutates
    narrow = transform_regions.used_only(step, {OUTER})
    x = torch.randn(3)
    assert narrow.outs == [((0,), OUTER)]
    assert torch.equal(narrow.func(x)[0], x.sin().cos())


def test_numbers_go_ahead_and_what_is_left_of_modes_comes_after():
    add = number(operator.add, (Ref(N), 1), M)
    modes = replace(current_modes(), grad=not current_modes().grad)
    one, two, three = collapsed(record(ENTER, add, ModeStep(modes), LEAVE), Span(0, 4))
    assert one is add
    assert isinstance(two.func, transform_regions.Region)
    assert three == ModeStep(modes)


@pytest.mark.parametrize("source", [INNER, OUTER])
def test_a_look_at_a_tensor_of_the_region_is_refused(source):
    look = number(torch.Tensor.item, (Ref(source),), N, expected=float)
    with pytest.raises(Refusal, match="is looked at within") as e:
        collapsed(record(ENTER, LEAVE, look, ENTER), Span(0, 4))
    assert e.value.where == "file.py:3 (f)"


def test_a_look_at_another_tensor_goes_ahead_unless_something_is_changed_before():
    look = number(torch.Tensor.item, (Ref(Y),), N, expected=float)
    assert collapsed(record(ENTER, look, LEAVE), Span(0, 3))[0] is look
    change = OpStep(torch.Tensor.add_, (Ref(Y), 1), {}, [], mutates=True)
    with pytest.raises(Refusal, match="is looked at within"):
        collapsed(record(ENTER, change, look, LEAVE), Span(0, 4))


def test_what_is_changed_from_within_is_told():
    change = OpStep(torch.Tensor.add_, (Ref(Y), 1), {}, [], mutates=True)
    (step,) = collapsed(record(ENTER, change, LEAVE), Span(0, 3))
    assert (step.mutates, step.writes) == (True, {Y})
    (step,) = collapsed(record(ENTER, LEAVE), Span(0, 2, {X}))
    assert (step.mutates, step.writes) == (True, {X})


def test_a_region_reaches_to_the_last_use_of_its_tensors():
    use = op(torch.sin, (Ref(INNER),), N)
    between = op(torch.exp, (Ref(Y),), M)
    assert len(collapsed(record(ENTER, between, use, types=[INNER]), Span(0, 1))) == 1
    assert len(collapsed(record(ENTER, between, use), Span(0, 1))) == 3
    steps = record(ENTER, between, use, LEAVE, types=[INNER])
    assert len(collapsed(steps, Span(0, 1), Span(2, 4))) == 1


def test_a_region_does_not_reach_over_a_look_at_its_results():
    look = number(torch.Tensor.item, (Ref(OUTER),), N, expected=float)
    use = op(torch.sin, (Ref(INNER),), M)
    steps = collapsed(record(ENTER, LEAVE, look, use, types=[INNER]), Span(0, 2))
    assert steps[1:] == [look, use]


def test_a_transform_that_is_left_active_is_refused():
    with pytest.raises(Refusal, match="active"):
        collapsed(record(ENTER, LEAVE), Span(0))


def test_a_region_that_raises_leaves_no_transform_active():
    functorch = torch._C._functorch
    enter = OpStep(functorch._grad_increment_nesting, (), {}, [])
    fails = op(torch.linalg.cholesky, (Ref(X),), OUTER)
    (step,) = collapsed(record(enter, fails), Span(0, 2))
    with pytest.raises(RuntimeError):
        step.func(torch.zeros(2, 3))
    assert functorch.get_dynamic_layer_stack_depth() == 0


def test_hooks_of_all_modules_do_not_hear_a_region():
    def f(x):
        return torch.vmap(lambda q: q * 3.0)(x)

    def doubled(module, args):
        return tuple(2 * a for a in args)

    compiled = magpy.compile(f, backend="eager")
    hook = torch.nn.modules.module.register_module_forward_pre_hook(doubled)
    try:
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2, 3), 3.0))
    finally:
        hook.remove()
    assert magpy.stats(compiled).hits == 2
