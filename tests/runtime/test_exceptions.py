"""Where an entry that raised had got to, and what a user sees of it."""

import operator
import traceback

import pytest
import torch

import magpy
from magpy.frames.synthetic import SILENT
from magpy.ir.ops import OpStep, Ref, Var
from magpy.ir.torch_modes import TorchModes
from magpy.replay.fx_graphs import GraphBuilder
from magpy.replay.segments import Segment
from magpy.runtime.exceptions import as_the_programs, untouched
from tests.comparison import assert_same

MODES = TorchModes(True, False, (), True)
T, INDEX, V, OUT = map(Var, range(4))


def segment(*steps):
    builder = GraphBuilder(MODES)
    inputs = [T, INDEX, V]
    for v in inputs:
        builder.placeholder(v)
    for step in steps:
        builder.op(step)
    return Segment(0, inputs, [T], builder.finish([T]), len(steps))


def step(func, *args, outs=(), **flags):
    return OpStep(func, args, {}, [((), v) for v in outs], **flags)


def raised(made, *inputs):
    try:
        made.graph.forward(*inputs)
    except Exception as error:  # noqa: BLE001 - whatever the operation raises
        return error
    pytest.fail("it raised nothing")


STORE = torch.Tensor.__setitem__
READ = step(torch.Tensor.__getitem__, Ref(T), Ref(INDEX), outs=[OUT])
WRITE = step(STORE, Ref(T), Ref(INDEX), Ref(V), mutates=True)
ADD = step(torch.Tensor.add_, Ref(V), 1, mutates=True)


def given(index, values=1):
    return torch.zeros(4), torch.tensor(index), torch.ones(values)


def test_what_reads_ahead_of_all_changes_has_changed_nothing():
    made = segment(READ, ADD)
    assert untouched([made], raised(made, *given([9])))


def test_what_reads_after_a_change_may_have():
    made = segment(ADD, READ)
    assert not untouched([made], raised(made, *given([9])))


def test_what_writes_first_and_raises_at_once_has_changed_nothing():
    made = segment(WRITE)
    assert untouched([made], raised(made, *given([9])))
    made = segment(READ, WRITE)
    assert untouched([made], raised(made, *given([1, 2], 3)))


def test_what_writes_as_a_statement_is_found():
    made = segment(step(torch.Tensor.__iadd__, Ref(T), Ref(V), mutates=True))
    error = raised(made, torch.zeros(4), torch.tensor([0]), torch.ones(3))
    assert untouched([made], error)
    made = segment(step(operator.iadd, Ref(T), Ref(V), mutates=True), READ)
    error = raised(made, torch.zeros(4), torch.tensor([9]), torch.ones(4))
    assert not untouched([made], error)
    made = segment(ADD, step(operator.iadd, Ref(T), Ref(V), mutates=True))
    error = raised(made, torch.zeros(4), torch.tensor([0]), torch.ones(3))
    assert not untouched([made], error)


def test_what_writes_second_is_after_a_change():
    made = segment(ADD, WRITE)
    assert not untouched([made], raised(made, *given([9])))


@pytest.mark.parametrize(
    "flags",
    [{"random": True}, {"unrepeatable": True}, {"whole": True}, {"site": SILENT}],
    ids=lambda flags: next(iter(flags)),
)
def test_what_does_more_than_write_is_not_done_again(flags):
    calls = []

    def store(t, i, v):
        calls.append(1)
        t[i] = v

    made = segment(step(store, Ref(T), Ref(INDEX), Ref(V), mutates=True, **flags))
    assert not untouched([made], raised(made, *given([9])))
    assert len(calls) == 1


def test_a_store_that_raises_in_its_middle_has_begun():
    made = segment(WRITE)
    t, i, v = given([0, 9], 2)
    assert not untouched([made], raised(made, t, i, v))
    assert t[0] == 1


@pytest.mark.parametrize(
    ("operation", "inputs"),
    [
        # An index that is disturbed, too, would raise earlier.
        (step(torch.ops.aten.index_add_, Ref(T), 0, Ref(INDEX), Ref(V)), (torch.zeros(4), [0, 9])),
        # What was added can be lost in a value that is disturbed.
        (
            step(torch.Tensor.index_add_, Ref(T), 0, Ref(INDEX), Ref(V)),
            (torch.full((4,), 2.0, dtype=torch.bfloat16), [0, 9]),
        ),
        (
            step(torch.Tensor.index_put_, Ref(T), (Ref(INDEX),), Ref(V), True),
            (torch.zeros(4), [0, 9]),
        ),
        (
            step(torch.Tensor.scatter_reduce_, Ref(T), 0, Ref(INDEX), Ref(V), "prod"),
            (torch.ones(4), [0, 9]),
        ),
        (step(torch.Tensor.floor_divide_, Ref(T), Ref(INDEX)), (torch.ones(2).long(), [1, 0])),
    ],
    ids=["custom", "rounded", "accumulated", "reduced", "divided"],
)
def test_what_computes_with_what_it_changes_is_not_done_again(operation, inputs):
    operation.mutates = True
    t, index = inputs
    values = torch.full((2,), 0.01, dtype=t.dtype)
    made = segment(operation)
    assert not untouched([made], raised(made, t.clone(), torch.tensor(index), values))


def test_what_is_given_an_output_is_not_done_again():
    """It may have resized it."""
    select = OpStep(torch.index_select, (Ref(T), 0, Ref(INDEX)), {"out": Ref(V)}, [], mutates=True)
    made = segment(select)
    t, i, v = given([0, 9], 0)
    assert not untouched([made], raised(made, t, i, v))
    assert len(v) == 2


def test_inputs_that_share_memory_decide_nothing():
    made = segment(WRITE)
    whole = torch.arange(4.0)
    assert not untouched([made], raised(made, whole, torch.tensor([9]), whole[:1]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.complex64])
def test_numbers_of_all_types_are_copied(dtype):
    made = segment(WRITE)
    t = torch.zeros(4, dtype=dtype)
    assert untouched([made], raised(made, t, torch.tensor([9]), torch.ones(1, dtype=dtype)))
    assert not t.any()


def test_kinds_that_cannot_be_copied_decide_nothing():
    made = segment(step(torch.Tensor.add_, Ref(T), Ref(V), mutates=True))
    sparse = torch.eye(3).to_sparse()
    assert not untouched([made], raised(made, sparse, torch.tensor([0]), torch.ones(7)))


def test_what_raises_elsewhere_decides_nothing():
    made, other = segment(READ), segment(READ)
    assert not untouched([other], raised(made, *given([9])))


def test_a_traceback_keeps_the_frames_of_torch_and_not_ours():
    made = segment(step(torch.nn.functional.cross_entropy, Ref(V), Ref(INDEX), outs=[OUT]))

    def mock(*inputs):
        made.graph.forward(*inputs)

    mock.__code__ = mock.__code__.replace(co_filename="<magpy mock>")
    try:
        mock(*given([3], 2))
    except (IndexError, ValueError, RuntimeError) as error:
        error.__traceback__ = error.__traceback__.tb_next  # this test's own
        before = [f.name for f in traceback.extract_tb(error.__traceback__)]
        after = [f.name for f in traceback.extract_tb(as_the_programs(error).__traceback__)]
    assert before == ["mock", "forward", "cross_entropy"]
    assert after == ["cross_entropy"]


# ------------------------------------------------------------- what a user sees


def stores(t, i, said):
    said.append(1)
    t[i] = 1.0
    said.append(2)
    return t


def stores_masked(t, i, said):
    said.append(1)
    t[t >= i[0]] = torch.ones(2)
    return t


def stores_where_autocast_is(t, i, said):
    with torch.autocast("cpu"):
        said.append(1)
        t[t >= i[0]] = torch.ones(2)
    return t


def stores_where_there_are_no_gradients(t, i, said):
    with torch.no_grad():
        said.append(1)
        t.index_copy_(0, i, torch.ones(len(i)))
    return t


def adds(t, i, said):
    said.append(1)
    t += t[t < i[0]]
    return t


def gathers_and_then_stores(t, i, said):
    said.append(1)
    u = t.gather(0, i)
    t[i] = u + 1
    return u


def stores_and_prints(t, i, said):
    said.append(1)
    t[i] = 1.0
    print("stored")
    return t


PROGRAMS = [
    (stores_and_prints, [[1], [2], [3], [9]]),
    (stores, [[1], [2], [3], [9]]),
    (stores_masked, [[2], [2], [2], [1], [2], [0]]),
    (stores_where_autocast_is, [[2], [2], [2], [1], [2], [0]]),
    (stores_where_there_are_no_gradients, [[1], [0], [2], [4]]),
    (adds, [[9], [9], [9], [2], [1], [9]]),
    (gathers_and_then_stores, [[1], [0], [2], [4]]),
]


def lines(error):
    found = traceback.extract_tb(error.__traceback__)
    return [(f.filename, f.lineno, f.name) for f in found][1:]


@pytest.mark.parametrize(("program", "calls"), PROGRAMS, ids=lambda v: getattr(v, "__name__", ""))
def test_an_operation_that_raises_and_is_the_first_change_raises_as_in_eager(program, calls):
    worlds = []
    compiled = magpy.compile(program, backend="eager")
    for f in (compiled, program):
        said, shown = [], []
        t = torch.arange(4.0)
        for index in calls:
            try:
                shown.append(f(t, torch.tensor(index), said).clone())
            except Exception as error:  # noqa: BLE001 - compared below
                shown.append((type(error), str(error), lines(error)))
            t = torch.arange(4.0)
        worlds.append((shown, said))
    assert_same(*worlds)
    assert any(type(s) is tuple for s in worlds[1][0])
    assert magpy.stats(compiled).hits > 0


def test_magpys_frames_are_hidden_where_a_change_came_before():
    def f(t, i):
        t.add_(1)
        return t[i]

    compiled = magpy.compile(f, backend="eager")
    for _ in range(2):
        compiled(torch.zeros(3), torch.tensor([1]))
    with pytest.raises(IndexError, match="index 9 is out of bounds") as caught:
        compiled(torch.zeros(3), torch.tensor([9]))
    assert magpy.stats(compiled).hits == 2
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)] == [
        "test_magpys_frames_are_hidden_where_a_change_came_before"
    ]
