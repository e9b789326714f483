"""What goes ahead of the graphs, on steps written by hand."""

import operator

import torch

from magpy.ir import aliasing
from magpy.ir.ops import Bind, CheckMetadata, CheckValue, OpStep, Ref, Var
from magpy.ir.torch_modes import current_modes
from magpy.replay import segments
from magpy.replay.passes.hoist import Hoist
from magpy.replay.passes.schedule import writes_again


def item(source, result):
    return Bind(torch.Tensor.item, (Ref(source),), {}, expected=float, result=result)


def check(number):
    return CheckValue(operator.lt, (Ref(number), 9.0), {}, expected=True)


def hoisted(steps, storages, needed=(), inputs=None):
    possible = aliasing.possible(steps, storages)
    hoist = Hoist(steps, set(needed), current_modes(), storages, possible, inputs)
    walked = []
    slice_of = hoist.slice_of

    def counting(k):
        found = slice_of(k)
        walked.append(len(found.steps) if found else 0)
        return found

    hoist.slice_of = counting
    hoist.run()
    return hoist.result(), walked


def test_a_chain_of_numbers_is_walked_once():
    x = Var(0)
    steps = [item(x, Var(1))]
    for n in range(1, 2000):
        add = (Ref(Var(n)), 1.0)
        steps.append(Bind(operator.add, add, {}, expected=float, result=Var(n + 1)))
    steps.append(check(Var(2000)))
    (ahead, rest), walked = hoisted(steps, {x: 1})
    assert ahead == steps
    assert rest == []
    assert sum(walked) == len(steps)


def test_a_number_that_was_read_before_a_change_goes_ahead_with_what_follows_from_it():
    """The change comes later than the read: a number does not change with the tensor."""
    x, number, more = Var(0), Var(1), Var(2)
    first = item(x, number)
    change = OpStep(torch.Tensor.add_, (Ref(x), 1), {}, [], mutates=True)
    second = Bind(operator.add, (Ref(number), 1.0), {}, expected=float, result=more)
    last = check(more)
    (ahead, rest), _ = hoisted([first, change, second, last], {x: 1})
    assert ahead == [first, second, last]
    assert rest == [change]
    (ahead, rest), _ = hoisted([change, first, second, last], {x: 1})
    assert ahead == []
    assert rest == [change, first, second, last]
    elsewhere = OpStep(torch.Tensor.add_, (Ref(Var(5)), 1), {}, [], mutates=True)
    (ahead, rest), _ = hoisted([first, elsewhere, second, last], {x: 1, Var(5): 2})
    assert ahead == [first, second, last]
    assert rest == [elsewhere]


def test_a_count_that_is_changed_is_read_ahead_from_a_copy():
    """What an optimizer keeps as `step`: the tensor is changed at its place, the copy ahead."""
    count, weights, number = Var(0), Var(1), Var(2)
    inputs = {count: torch.tensor(3.0), weights: torch.ones(2)}
    storages = {count: 1, weights: 2}
    change = OpStep(torch.Tensor.add_, (Ref(count), 1), {}, [], mutates=True)
    other = OpStep(torch.Tensor.mul_, (Ref(weights), 2), {}, [], mutates=True)
    read, last = item(count, number), check(number)
    (ahead, rest), _ = hoisted([change, other, read, last], storages, inputs=inputs)
    assert rest == [change, other]
    clone, changed, reads, checks = ahead
    copy = clone.outs[0][1]
    assert clone.func is torch.Tensor.clone and clone.args == (Ref(count),)
    assert copy not in (count, weights, number)
    assert changed.args == (Ref(copy), 1) and not changed.mutates
    assert reads.args == (Ref(copy),) and reads.result == number
    assert checks is last


def test_a_count_is_read_ahead_as_it_is_at_its_place():
    count, first, second = Var(0), Var(1), Var(2)
    change = OpStep(torch.Tensor.add_, (Ref(count), 1), {}, [], mutates=True)
    again = OpStep(torch._foreach_mul_, ([Ref(count)], 2.0), {}, [], mutates=True)
    steps = [change, item(count, first), check(first), again, item(count, second), check(second)]
    (ahead, rest), _ = hoisted(steps, {count: 1}, inputs={count: torch.tensor(3.0)})
    assert rest == [change, again]
    names = [getattr(s.func, "__name__", "") for s in ahead]
    assert names == ["clone", "add_", "item", "lt", "_foreach_mul_", "item", "lt"]


def test_what_no_copy_stands_for_stays_behind():
    """A tensor of several numbers, one that requires grad, one that shares its memory."""
    count, view, number = Var(0), Var(1), Var(2)
    change = OpStep(torch.Tensor.add_, (Ref(count), 1), {}, [], mutates=True)
    steps = [change, item(count, number), check(number)]
    for tensor, storages in (
        (torch.ones(2), {count: 1}),
        (torch.ones((), requires_grad=True), {count: 1}),
        (torch.ones(()), {count: 1, view: 1}),
        (torch.ones(()), {count: aliasing.UNKNOWN}),
    ):
        (ahead, rest), _ = hoisted(steps, storages, inputs={count: tensor})
        assert (ahead, rest) == ([], steps)
    drawn = OpStep(torch.Tensor.random_, (Ref(count),), {}, [], mutates=True, random=True)
    (ahead, rest), _ = hoisted([drawn, *steps[1:]], {count: 1}, inputs={count: torch.tensor(3.0)})
    assert (ahead, rest) == ([], [drawn, *steps[1:]])


def test_views_of_a_tensor_that_is_made_again_stay_behind():
    """What a host step makes is used as it is: it has to be of the tensor that the graph makes."""
    x, made, part = Var(0), Var(1), Var(2)
    mask = OpStep(torch.Tensor.__getitem__, (Ref(x), Ref(x)), {}, [((), made)])
    split = CheckMetadata(torch.Tensor.split, (Ref(made), 1), {}, [((0,), part)], expected=None)
    (ahead, rest), _ = hoisted([mask, split], {x: 1, made: 2, part: 2}, needed=[part])
    assert ahead == []
    assert rest == [mask, split]
    (ahead, rest), _ = hoisted([mask, split], {x: 1, made: 0, part: 0}, needed=[part])
    assert ahead == []
    (ahead, rest), _ = hoisted([mask, split], {x: 1, made: 2, part: 3}, needed=[part])
    assert ahead == [mask, split]  # it has a memory of its own
    of_the_input = CheckMetadata(torch.Tensor.split, (Ref(x), 1), {}, [((0,), part)], expected=None)
    (ahead, rest), _ = hoisted([of_the_input], {x: 1, part: 1}, needed=[part])
    assert ahead == [of_the_input]


def test_a_list_with_a_tensor_twice_is_written_by_python():
    a, b, view = Var(0), Var(1), Var(2)
    storages = {a: 1, b: 2, view: 1}

    def step(*written, mutates=True):
        refs = [Ref(v) for v in written]
        return OpStep(torch._foreach_mul_, (refs, 2.0), {}, [], mutates=mutates)

    assert not writes_again(step(a, b), storages)
    assert writes_again(step(a, b, a), storages)
    assert writes_again(step(a, view), storages)
    assert not writes_again(step(a, a, mutates=False), storages)


def test_variables_are_kept_for_the_last_run_that_uses_them():
    made = OpStep(torch.sin, (Ref(Var(0)),), {}, [((), Var(1))])
    host = CheckValue(torch.Tensor.item, (Ref(Var(1)),), {}, expected=1.0)
    runs = [(("graph", None), [made]), host, (("graph", None), [made])]
    last = segments._last_uses(runs, {Var(2)})
    assert last == {Var(0): 2, Var(1): 1, Var(2): len(runs)}
