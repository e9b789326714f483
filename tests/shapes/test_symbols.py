"""Symbols, their conditions, and what is taken to vary, on hand-made tensors and numbers."""

import operator

import pytest
import torch

from magpy import _interp
from magpy.backends.symbolic_inputs import giving_sizes, with_sizes
from magpy.ir.capture import Dims
from magpy.ir.ops import OutsideRef, Ref, Var
from magpy.shapes.arithmetic import hint, is_open, plain
from magpy.shapes.conditions import Conditions
from magpy.shapes.fake_ops import CannotFollowError
from magpy.shapes.speculation import Memory
from magpy.shapes.symbols import Symbols


def unknown(var):
    raise AssertionError(f"nobody knows the tensor of variable {var}")


def of_tensor(*shape, mask=1):
    t = torch.zeros(shape)
    symbols = Symbols({id(t): Dims(mask)})
    assert symbols.tensor(Var(0), t) == (mask, 0)
    return symbols, t


def holds(symbols, *args):
    conditions = Conditions()
    conditions.over(symbols.sources, lambda s: id(s.outside))
    symbols.fill(conditions)
    return conditions(*args)


def test_a_size_is_free_until_something_is_found_out_about_it():
    symbols, _ = of_tensor(5, 4)
    assert holds(symbols, torch.zeros(3, 4))
    size = symbols.fakes[0].shape[0]
    assert is_open(size)
    assert hint(size) == 5
    assert bool(size > 4)
    assert holds(symbols, torch.zeros(7, 4))
    assert not holds(symbols, torch.zeros(4, 4))
    assert not holds(symbols, torch.zeros(1, 4))
    assert plain(size) == 5
    assert not is_open(symbols.fakes[0].shape[0])
    assert not symbols.free()
    assert not holds(symbols, torch.zeros(7, 4))


def test_an_operation_gives_sizes_in_terms_of_the_arguments():
    symbols, _ = of_tensor(6, 4)
    out = symbols.operation(torch.Tensor.view, (Ref(Var(0)), -1, 2), {}, unknown)
    symbols.note(Var(1), out)
    assert hint(out.shape[0]) == 12
    assert symbols.concerns({1})
    assert is_open(out.shape[0])
    assert holds(symbols, torch.zeros(9, 4))


def test_what_operators_check_becomes_a_condition():
    symbols, _ = of_tensor(6, 4)
    other = torch.zeros(6, 4)
    symbols.sizes[id(other)] = Dims(1)
    symbols.tensor(Var(1), other)
    symbols.operation(torch.add, (Ref(Var(0)), Ref(Var(1))), {}, unknown)
    assert holds(symbols, torch.zeros(8, 4), torch.zeros(8, 4))
    assert not holds(symbols, torch.zeros(8, 4), torch.zeros(7, 4))


@pytest.mark.parametrize("args", [(Ref(Var(0)), OutsideRef([])), (Ref(Var(0)), torch.nn.Module)])
def test_what_fake_tensors_cannot_do_is_said(args):
    symbols, _ = of_tensor(6, 4)
    with pytest.raises(CannotFollowError):
        symbols.operation(torch.add, args, {}, unknown)


def test_data_is_not_there():
    symbols, _ = of_tensor(6, 4)
    with pytest.raises(CannotFollowError):
        symbols.operation(torch.Tensor.nonzero, (Ref(Var(0)),), {}, unknown)
    assert holds(symbols, torch.zeros(2, 4))
    assert not holds(symbols, torch.zeros(1, 4))  # nobody says that this makes no difference


def test_a_tensor_of_the_run_is_asked_for():
    symbols, _ = of_tensor(6, 4)
    weight = torch.zeros(4, 3)
    out = symbols.operation(
        torch.matmul, (Ref(Var(0)), Ref(Var(7))), {}, {Var(7): weight}.__getitem__
    )
    assert tuple(map(hint, out.shape)) == (6, 3)
    assert out.shape[1] == 3
    assert not is_open(out.shape[1])


def number(value):
    symbols = Symbols({})
    symbols.number(Var(0), value)
    return symbols


def test_arithmetic_is_followed():
    symbols = number(5)
    n = Ref(Var(0))
    assert hint(symbols.compute(operator.add, (n, 1))) == 6
    assert hint(symbols.compute(operator.truediv, (n, 2))) == 2.5
    assert hint(symbols.compute(operator.mul, (n, 1.5))) == 7.5
    assert hint(symbols.compute(max, (n, 7))) == 7
    assert hint(symbols.compute(sum, ((n, n, 2),))) == 12
    assert symbols.compute(operator.lt, (n, 9)) is True
    assert holds(symbols, 8)
    assert not holds(symbols, 9)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (operator.pow, (2, Ref(Var(0)))),
        (max, (Ref(Var(0)), 1.5)),
        (str, (Ref(Var(0)),)),
        (operator.add, (Ref(Var(0)), "text")),
        (operator.add, (Ref(Var(0)), Ref(Var(1)))),
        (operator.truediv, (1, Ref(Var(0)))),  # no float holds it exactly
        (operator.truediv, (Ref(Var(0)), 3)),
        (operator.mul, (Ref(Var(0)), 0.1)),
        (operator.mul, (Ref(Var(0)), 0.0)),  # its sign is that of the number
        (operator.mod, (Ref(Var(0)), 0.5)),
    ],
)
def test_what_is_not_followed_says_nothing(func, args):
    symbols = number(5)
    assert symbols.compute(func, args) is None
    assert holds(symbols, -3)


def test_a_divisor_is_not_zero():
    symbols = number(5)
    assert hint(symbols.compute(operator.floordiv, (20, Ref(Var(0))))) == 4
    assert holds(symbols, 3)
    assert not holds(symbols, 0)


@pytest.mark.parametrize("value", [True, 1.5, 1 << 20, -(1 << 40)])
def test_what_is_no_symbol(value):
    symbols = number(value)
    assert symbols.numbers == {}
    assert symbols.sources == []


def test_all_can_be_fixed():
    symbols, _ = of_tensor(5, 4, mask=3)
    symbols.number(Var(1), 7)
    symbols.fix_all()
    assert not symbols.free()
    assert not symbols.concerns({0, 1})
    assert not holds(symbols, torch.zeros(6, 4), 7)
    assert holds(symbols, torch.zeros(5, 4), 7)


def test_a_graph_takes_sizes():
    symbols, _ = of_tensor(5, 4)
    graph = torch.fx.symbolic_trace(lambda x, y: x + y)
    changed, inputs, places = with_sizes(graph, [symbols.fakes[0], torch.zeros(4)])
    assert places == [(0, torch.Tensor.size, 0)]
    assert [hint(n) for n in inputs[:1]] == [5]
    x = torch.ones(3, 4)
    assert torch.equal(changed(3, x, x), x + x)
    assert torch.equal(giving_sizes(changed.forward, places)(x, x), x + x)
    assert len(list(graph.graph.find_nodes(op="placeholder"))) == 2


def test_strides_are_symbols_where_they_do_not_follow():
    whole = torch.zeros(3, 5, 8)
    part = whole[:, :, :6]
    symbols = Symbols({id(part): Dims(4, 7)})
    assert symbols.tensor(Var(0), part) == (4, 2)
    fake = symbols.fakes[0]
    assert tuple(map(hint, fake.stride())) == (40, 8, 1)
    assert is_open(fake.stride(0))
    assert bool(fake.stride(0) == 5 * fake.stride(1))
    assert holds(symbols, torch.zeros(3, 5, 9)[:, :, :7])
    assert bool(fake.stride(1) > 7)
    assert not holds(symbols, torch.zeros(3, 5, 7)[:, :, :6])
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    _, inputs, places = with_sizes(graph, [fake])
    assert places == [(0, torch.Tensor.size, 2), (0, torch.Tensor.stride, 1)]
    assert list(map(hint, inputs[:2])) == [6, 8]


def masks(found, *tensors):
    return [found.sizes.get(id(t), Dims()).sizes if found is not None else 0 for t in tensors]


def test_what_differs_varies():
    memory = Memory(None)
    first, second, third = torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(5, 4)
    assert memory.look((first, 2), {"k": 1.5}) is None
    found = memory.look((second, 2), {"k": 2.5})
    assert masks(found, second) == [1]
    assert found.numbers == {"k"}
    found = memory.look((third, 3), {"k": 2.5})
    assert masks(found, third) == [1]
    assert found.numbers == {1, "k"}


def test_a_place_is_one_in_containers_too():
    memory = Memory(None)
    for n in (3, 4):
        tensors = torch.zeros(n, 2), torch.zeros(2, n)
        found = memory.look(([tensors[0], {"a": (tensors[1],)}],), {})
    assert masks(found, *tensors) == [1, 3]


def test_a_row_of_tensors_is_alike_until_they_differ():
    memory = Memory(None)
    for n in (3, 4):
        tensors = torch.zeros(n, 2), torch.zeros(n, 2), torch.zeros(n, 2)
        found = memory.look(([tensors[0], tensors[1]], tensors[2]), {})
    assert found.alike[id(tensors[0])] == found.alike[id(tensors[1])]
    assert id(tensors[2]) not in found.alike  # two arguments are two things
    tensors = torch.zeros(5, 2), torch.zeros(6, 2), torch.zeros(6, 2)
    assert memory.look(([tensors[0], tensors[1]], tensors[2]), {}).alike == {}
    tensors = torch.zeros(5, 2), torch.zeros(5, 2), torch.zeros(5, 2)
    assert memory.look(([tensors[0], tensors[1]], tensors[2]), {}).alike == {}


def test_tensors_of_a_row_share_a_symbol_where_they_are_equally_large():
    tensors = torch.zeros(5, 4), torch.zeros(5, 4), torch.zeros(6, 4), torch.zeros(5, 4)
    row = ("row",)
    symbols = Symbols({id(t): Dims(1) for t in tensors}, alike={id(t): row for t in tensors[:3]})
    for i, t in enumerate(tensors):
        symbols.tensor(Var(i), t)
    found = [symbols.fakes[i].shape[0].node.expr for i in range(4)]
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert holds(symbols, *map(torch.zeros, (7, 7, 8, 9), (4,) * 4))
    assert not holds(symbols, *map(torch.zeros, (7, 8, 8, 9), (4,) * 4))
    assert symbols.free()
    # What follows from a shared size is read from the first tensor that has it.
    assert symbols.read(symbols.fakes[1].shape[0]) == (torch.Tensor.size, (Ref(Var(0)), 0))
    assert plain(symbols.fakes[1].shape[0]) == 5
    assert not holds(symbols, *map(torch.zeros, (7, 7, 8, 9), (4,) * 4))
    assert plain(symbols.fakes[2].shape[0]) == 6
    assert plain(symbols.fakes[3].shape[0]) == 5
    assert not symbols.free()
    assert holds(symbols, *map(torch.zeros, (5, 5, 6, 5), (4,) * 4))
    assert not holds(symbols, *map(torch.zeros, (5, 6, 6, 5), (4,) * 4))


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(5, 4).to_sparse(), torch.zeros(()), torch.zeros(1, 4), torch.zeros(2, 2, 2)],
)
def test_what_does_not_vary(tensor):
    memory = Memory(None)
    memory.look((torch.zeros(3, 4),), {})
    assert masks(memory.look((tensor,), {}), tensor) == [0]


def test_dynamic_says_what_varies():
    x = torch.zeros(3, 1)
    assert masks(Memory(True).look((x, 2), {}), x) == [1]
    assert Memory(False).look((x, 2), {}) is None
    memory = Memory(True)
    memory.stop()
    assert memory.look((x, 2), {}) is None


def test_a_sum_that_begins_with_an_integer_varies():
    memory = Memory(None)
    assert memory.look((0,), {}) is None
    assert memory.look((0.5,), {}).numbers == {0}


def test_a_truth_value_is_no_number_that_varies():
    memory = Memory(None)
    for value in (True, 2.0, False, "2", 2.0):
        found = memory.look((value,), {})
    assert found is None


def of_data(*shapes):
    """Symbols of tensors whose sizes follow from data, one step for each, all told of the rest."""
    symbols = Symbols({}, data=True)
    checks = []
    for i, shape in enumerate(shapes):
        assert symbols.sized_by_data([(Var(i), torch.zeros(shape))]) == [
            Dims(sum(1 << k for k, n in enumerate(shape) if n > 1))
        ]
        checks.append(symbols.checked(lambda t: t, 1, [Var(i)]))
    return symbols, checks


def test_sizes_of_data_are_checked_where_all_of_them_are_known():
    symbols, (first, second) = of_data((5, 4), (6, 1))
    a, b = symbols.fakes[0].shape[0], symbols.fakes[1].shape[0]
    assert bool(a > 2)
    assert bool(b == a + 1)
    assert symbols.complete(first, ()) == []
    assert symbols.complete(second, ()) == [Var(0)]
    symbols.fill(None)
    three = torch.zeros(3, 4)
    assert first(three) is three
    assert first(torch.zeros(2, 4)) is _interp.MISS  # not larger than 2
    four = torch.zeros(4, 1)
    assert second(four, three) is four
    assert second(torch.zeros(5, 1), three) is _interp.MISS
    assert second(torch.zeros(1, 1), three) is _interp.MISS  # a size of 1 is another matter


def test_a_condition_on_data_and_arguments_is_checked_with_the_data():
    symbols, t = of_tensor(5, 4)
    symbols._data = True
    symbols.sized_by_data([(Var(1), torch.zeros(5))])
    check = symbols.checked(lambda t: t, 1, [Var(1)])
    assert bool(symbols.fakes[1].shape[0] == symbols.fakes[0].shape[0])
    assert symbols.complete(check, {Var(0)}) == [Var(0)]
    guard = Conditions()
    guard.over([s for s in symbols.sources if s.outside is not None], lambda s: id(s.outside))
    symbols.fill(guard)
    assert guard(torch.zeros(9, 4))
    assert not guard(torch.zeros(0, 4))
    seven = torch.zeros(7)
    assert check(seven, torch.zeros(7, 4)) is seven
    assert check(seven, torch.zeros(8, 4)) is _interp.MISS


def test_a_condition_that_nothing_can_check_is_not_forgotten():
    symbols, (check,) = of_data((5,))
    assert symbols.number_of_data(Var(7), 5)  # nobody checks this one
    assert bool(symbols.numbers[7] == symbols.fakes[0].shape[0])
    symbols.complete(check, ())
    with pytest.raises(CannotFollowError, match="nothing checks"):
        symbols.fill(None)


def test_an_integer_of_data_is_what_the_run_relied_on():
    symbols = Symbols({}, data=True)
    assert symbols.number_of_data(Var(0), 3)
    assert not symbols.number_of_data(Var(1), 1 << 40)  # too large for a compiler's integers
    check = symbols.checked(int, 1, [Var(0)])
    assert symbols.compute(operator.gt, (Ref(Var(0)), 1)) is True
    symbols.complete(check, ())
    symbols.fill(None)
    assert check("2") == 2
    assert check("0") is _interp.MISS
    assert check(str(1 << 30)) is _interp.MISS
    plain(symbols.numbers[Var(0)])  # as the recorder does where it relies on a number
    symbols.fill(None)
    assert check("3") == 3
    assert check("2") is _interp.MISS


def test_sizes_of_data_are_followed_only_where_that_was_asked_for():
    symbols = Symbols({})
    assert not symbols.data
    assert not symbols.number_of_data(Var(0), 3)
    symbols = Symbols({}, data=True)
    symbols.fix_all()
    assert not symbols.data


@pytest.mark.parametrize("fits", [True, False])
def test_a_mask_that_is_stored_at_has_the_sizes_of_what_it_is_for(fits):
    symbols, _ = of_tensor(5, 4)
    mask = torch.zeros(5 if fits else 6, dtype=torch.bool)
    symbols.sizes[id(mask)] = Dims(1)
    symbols.tensor(Var(1), mask)
    call = torch.Tensor.__setitem__, (Ref(Var(0)), Ref(Var(1)), 1.0), {}, unknown
    if not fits:
        with pytest.raises(CannotFollowError, match="does not fit"):
            symbols.operation(*call)
        return
    symbols.operation(*call)
    assert holds(symbols, torch.zeros(7, 4), torch.zeros(7, dtype=torch.bool))
    assert not holds(symbols, torch.zeros(7, 4), torch.zeros(6, dtype=torch.bool))


def test_a_tensor_that_was_given_other_sizes_says_nothing_of_a_symbol():
    symbols, (first, second) = of_data((5,), (5,))
    assert bool(symbols.fakes[0].shape[0] == symbols.fakes[1].shape[0])
    assert symbols.complete(first, ()) == []
    assert symbols.complete(second, (), {Var(0)}) == []
    with pytest.raises(CannotFollowError, match="nothing checks"):
        symbols.fill(None)


def test_the_condition_that_a_call_breaks_is_told_in_words():
    symbols, _t = of_tensor(5, 4)
    assert symbols.fakes[0].shape[0] < 100
    conditions = Conditions()
    conditions.over(symbols.sources, lambda s: id(s.outside))
    symbols.fill(conditions)
    assert conditions.said(["x"]) == ["x.shape[0] >= 1", "x.shape[0] < 100"]
    assert conditions.broken(["x"]) is None
    assert conditions(torch.zeros(99, 4))
    assert not conditions(torch.zeros(100, 4))
    told = "x.shape[0] < 100", "", "no longer holds: x.shape[0] is 100", ""
    assert conditions.broken(["x"]) == told


def test_a_size_that_was_fixed_is_told_with_both_values():
    symbols, _t = of_tensor(5, 4)
    symbols.fix_all()
    conditions = Conditions()
    conditions.over(symbols.sources, lambda s: id(s.outside))
    symbols.fill(conditions)
    assert not conditions(torch.zeros(6, 4))
    assert conditions.broken(["batch[0]"]) == ("batch[0].shape[0]", "5", "6", "")
