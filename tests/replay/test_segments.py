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


def hoisted(steps, storages, needed=()):
    hoist = Hoist(steps, set(needed), current_modes(), storages, aliasing.possible(steps, storages))
    walked = []
    slice_of = hoist.slice_of

    def counting(k):
        found = slice_of(k)
        walked.append(len(found[0]) if found else 0)
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


def test_what_a_check_that_goes_ahead_follows_from_counts_for_later_ones():
    """The number was read before the change: a check of it after the change stays behind."""
    x, number, more = Var(0), Var(1), Var(2)
    first = item(x, number)
    change = OpStep(torch.Tensor.add_, (Ref(x), 1), {}, [], mutates=True)
    second = Bind(operator.add, (Ref(number), 1.0), {}, expected=float, result=more)
    last = check(more)
    (ahead, rest), _ = hoisted([first, change, second, last], {x: 1})
    assert ahead == [first]
    assert rest == [change, second, last]
    elsewhere = OpStep(torch.Tensor.add_, (Ref(Var(5)), 1), {}, [], mutates=True)
    (ahead, rest), _ = hoisted([first, elsewhere, second, last], {x: 1, Var(5): 2})
    assert ahead == [first, second, last]
    assert rest == [elsewhere]


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
