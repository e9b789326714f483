"""What goes ahead of the graphs, on steps written by hand."""

import itertools
import operator

import pytest
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


def hoisted(steps, storages, inputs=None):
    possible = aliasing.possible(steps, storages)
    hoist = Hoist(steps, current_modes(), storages, possible, inputs)
    walked = []
    slice_of = hoist.slice_of

    def counting(k):
        found = slice_of(k)
        walked.append(len(found.steps) if found else 0)
        return found

    hoist.slice_of = counting
    hoist.run()
    found = hoist.result()
    return (found.ahead, found.rest), walked


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
    changed, reads, checks = ahead
    copy = changed.outs[0][1]
    assert changed.func is torch.Tensor.add and changed.args == (Ref(count), 1)
    assert not changed.mutates
    assert copy not in (count, weights, number)
    assert reads.args == (Ref(copy),) and reads.result == number
    assert checks is last


@pytest.mark.parametrize(
    ("start", "func", "args"),
    [
        (torch.tensor(3), torch.Tensor.add_, (1,)),  # it may be promoted
        (torch.tensor(3.0), torch.Tensor.add_, (2j,)),
        (torch.tensor(3.0), torch.Tensor.add_, (True,)),
        (torch.tensor(3.0), torch.Tensor.pow_, (2,)),
    ],
)
def test_a_copy_is_changed_where_one_operation_cannot_make_it(start, func, args):
    count, number = Var(0), Var(1)
    change = OpStep(func, (Ref(count), *args), {}, [], mutates=True)
    steps = [change, item(count, number), check(number)]
    (ahead, rest), _ = hoisted(steps, {count: 1}, inputs={count: start})
    assert rest == [change]
    clone, changed, reads, _ = ahead
    copy = clone.outs[0][1]
    assert clone.func is torch.Tensor.clone and clone.args == (Ref(count),)
    assert changed.args == (Ref(copy), *args) and changed.mutates
    assert reads.args == (Ref(copy),) and reads.result == number


def test_a_count_is_read_ahead_as_it_is_at_its_place():
    count, first, second = Var(0), Var(1), Var(2)
    change = OpStep(torch.Tensor.add_, (Ref(count), 1), {}, [], mutates=True)
    again = OpStep(torch._foreach_mul_, ([Ref(count)], 2.0), {}, [], mutates=True)
    steps = [change, item(count, first), check(first), again, item(count, second), check(second)]
    (ahead, rest), _ = hoisted(steps, {count: 1}, inputs={count: torch.tensor(3.0)})
    assert rest == [change, again]
    names = [getattr(s.func, "__name__", "") for s in ahead]
    assert names == ["add", "item", "lt", "_foreach_mul_", "item", "lt"]


def test_what_python_does_for_many_counts_comes_between_two_graphs():
    """Each count is changed, read, and changed by what follows from that: as NAdam does."""
    steps, inputs, storages = [], {}, {}
    for n in range(0, 40, 4):
        count, product, number, factor = Var(n), Var(n + 1), Var(n + 2), Var(n + 3)
        inputs |= {count: torch.tensor(3.0), product: torch.tensor(2.0)}
        storages |= {count: n + 1, product: n + 2}
        steps += [
            OpStep(torch.Tensor.add_, (Ref(count), 1), {}, [], mutates=True),
            item(count, number),
            OpStep(torch.Tensor.mul_, (Ref(product), Ref(number)), {}, [], mutates=True),
            item(product, factor),
            check(factor),
        ]
    (ahead, _), _ = hoisted(steps, storages, inputs=inputs)
    kinds = [isinstance(s, OpStep) for s in ahead]
    assert sum(a != b for a, b in itertools.pairwise(kinds)) == 3
    assert len(ahead) == 60 and kinds[0]


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


def test_what_is_changed_later_stays_behind():
    """No graph changes what another graph has made."""
    x, made, part, total, more = map(Var, range(5))
    mask = OpStep(torch.Tensor.__getitem__, (Ref(x), Ref(x)), {}, [((), made)])
    split = CheckMetadata(torch.Tensor.split, (Ref(made), 1), {}, [((0,), part)], expected=None)
    storages = {x: 1, made: 2, part: 2}
    (ahead, rest), _ = hoisted([mask, split], storages)
    assert (ahead, rest) == ([mask, split], [])
    change = OpStep(torch.Tensor.add_, (Ref(made), 1), {}, [], mutates=True)
    (ahead, rest), _ = hoisted([mask, split, change], storages)
    assert (ahead, rest) == ([], [mask, split, change])
    read, last = item(made, total), check(total)
    other = OpStep(torch.Tensor.add, (Ref(made), 1), {}, [((), more)])
    (ahead, rest), _ = hoisted([mask, read, last, other], storages | {more: 3})
    assert (ahead, rest) == ([mask, read, last], [other])
    (ahead, rest), _ = hoisted([mask, read, last, change], storages)
    assert (ahead, rest) == ([], [mask, read, last, change])


def test_a_check_of_much_work_waits():
    x, w, made, number = map(Var, range(4))
    product = OpStep(torch.matmul, (Ref(x), Ref(w)), {}, [((), made)])
    steps = [product, item(made, number), check(number)]
    for size, goes in ((8, True), (512, False)):
        elements = dict.fromkeys((x, w, made), size * size)
        hoist = Hoist(steps, current_modes(), {}, {}, {}, elements)
        hoist.run()
        assert bool(hoist.result().ahead) == goes
    much = [OpStep(torch.matmul, (Ref(x), Ref(w)), {}, [((), Var(5 + n))]) for n in range(3)]
    elements |= dict.fromkeys(range(5, 8), 512 * 512)
    hoist = Hoist([*steps, *much], current_modes(), {}, {}, {}, elements)
    hoist.run()
    assert hoist.result().ahead == steps, "it is a quarter of it"


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
