"""Tensors that a call makes of lists of numbers in its arguments: two captures serve all lists."""

import types

import numpy as np
import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

W = torch.arange(400.0).reshape(80, 5)

MADE = [
    "torch.tensor(ids)",
    "torch.tensor([ids])",
    "torch.tensor([ids, ids])",
    "torch.tensor(ids, dtype=torch.float32)",
    "torch.as_tensor(ids).float().relu()",
    "torch.LongTensor(ids)",
    "torch.FloatTensor(ids) * 2",
    "W.new_tensor(ids)",
    "torch.nn.functional.embedding(torch.tensor([ids]), W).relu().mean(1)",
    "W[torch.tensor(ids)].sum()",
    "(torch.tensor(ids), len(ids))",
    "(torch.tensor(ids) * len(ids), len(ids) > 0)",
    "torch.tensor(ids).view(len(ids), 1) * 2",
    "(torch.tensor(ids), sum(ids), max(ids) * 2.5)",
    "W[:2] * sum(ids) + min(ids)",
    "torch.zeros(max(ids) + 2)",
    "torch.tensor(ids)[:2]",
    "torch.tensor(ids).expand(2, -1)",
    "torch.tensor(ids).add_(1)",
]
SAME_SIZE = [[i, i + 1, i * 2] for i in (3, 9, 4, 20, 7, 5)]
OF_SIZES = [list(range(i, i + n)) for i, n in ((3, 4), (9, 5), (4, 3), (20, 9), (7, 2), (5, 30))]


def compared(f, calls, backend="eager"):
    """The figures of a compiled function after calls, each compared with eager."""
    compiled = magpy.compile(f, backend=backend)
    for given in calls:
        assert_same(compiled(given), f(given))
    return magpy.stats(compiled)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("lists", [SAME_SIZE, OF_SIZES], ids=["same_size", "of_sizes"])
@pytest.mark.parametrize("made", MADE)
def test_two_captures_serve_all_lists(made, lists, backend):
    stats = compared(eval(f"lambda ids: {made}", {"torch": torch, "W": W}), lists, backend)
    assert stats.captures == 2 and stats.hits == 4, stats


@pytest.mark.parametrize("lists", [SAME_SIZE, OF_SIZES], ids=["same_size", "of_sizes"])
def test_lists_in_what_is_given(lists):
    def f(batch):
        return torch.tensor(batch["ids"]).float() * 2, torch.tensor(batch["more"][0]).sum()

    stats = compared(f, [{"ids": ids, "more": [ids[:2]]} for ids in lists])
    assert stats.captures == 2 and stats.hits == 4, stats


def test_lists_of_lists():
    calls = [[[i, 2.5, n] for i in range(n)] for n in (3, 4, 2, 7, 5)]
    stats = compared(lambda rows: torch.tensor(rows).relu().sum(0), calls)
    assert stats.captures == 2 and stats.hits == 3, stats


def test_a_long_list_is_an_input_at_once():
    stats = compared(
        lambda ids: torch.tensor(ids) * 2, [list(range(i, i + 5000)) for i in range(4)]
    )
    assert stats.captures == 1 and stats.hits == 3, stats


UNLIKE = [
    [],
    [1],
    [2.5, 1],
    [True, False, True],
    [float("nan"), 1.0],
    [[1, 2], [3, 4]],
    [np.int64(3), 4],
    [torch.tensor(3), 4],
    (1, 2, 3),
    [2**62, 1, 2],
    types.SimpleNamespace,
    [1, "a", 2],
    [[1, 2], [3]],
    [2**70, 1],
    None,
]


@pytest.mark.parametrize("unlike", UNLIKE, ids=lambda v: repr(v)[:20])
@pytest.mark.parametrize("lists", [SAME_SIZE, OF_SIZES], ids=["same_size", "of_sizes"])
def test_what_is_no_such_list_is_as_in_eager(unlike, lists):
    def f(ids):
        return torch.tensor(ids) * 2

    compiled = magpy.compile(f, backend="eager")
    for ids in lists[:4]:
        assert_same(compiled(ids), f(ids))
    for _ in range(2):
        try:
            wanted = f(unlike)
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                compiled(unlike)
            assert str(caught.value) == str(error)
        else:
            assert_same(compiled(unlike), wanted)
    for ids in lists:
        assert_same(compiled(ids), f(ids))


CHANGING = {
    "appended before": "ids.append(5); made = torch.tensor(ids)",
    "appended after": "made = torch.tensor(ids); ids.append(5)",
    "stored before": "ids[0] = x.sum().item(); made = torch.tensor(ids)",
    "stored after": "made = torch.tensor(ids); ids[0] = 7",
    "sorted before": "ids.sort(reverse=True); made = torch.tensor(ids)",
    "popped between": "one = torch.tensor(ids); ids.pop(); made = one.sum() + torch.tensor(ids)",
    "twice": "made = torch.tensor(ids) + torch.tensor(ids)",
    "read by place": "made = torch.tensor(ids) * ids[0]",
    "gone through": "made = torch.tensor(ids) + sum(i * 2 for i in ids)",
    "branch": "made = torch.tensor(ids) * (2 if ids[0] > 5 else 3)",
    "another list": "ids = [i + 1 for i in ids]; made = torch.tensor(ids)",
    "alias": "other = ids; other.append(1); made = torch.tensor(ids)",
    "written by C": "list.insert(ids, 0, 3); made = torch.tensor(ids)",
    "extended": "ids += [1, 2]; made = torch.tensor(ids)",
}


@pytest.mark.parametrize("lists", [SAME_SIZE, OF_SIZES], ids=["same_size", "of_sizes"])
@pytest.mark.parametrize("body", CHANGING.values(), ids=CHANGING)
def test_the_call_itself_reads_and_changes_the_list(body, lists):
    space = {"torch": torch}
    lines = "\n    ".join(body.split("; "))
    exec(f"def f(x, ids):\n    {lines}\n    return made, x + 1", space)
    f = space["f"]
    compiled = magpy.compile(f, backend="eager")
    for i, ids in enumerate(lists + lists[::-1]):
        x, own, other = torch.full((2,), float(i)), list(ids), list(ids)
        assert_same(compiled(x, own), f(x, other))
        assert own == other


def test_the_list_changes_between_calls_and_is_the_same_object():
    ids = [1, 2, 3]

    def f(ids):
        return torch.tensor(ids) * 2

    compiled = magpy.compile(f, backend="eager")
    for i in range(6):
        assert_same(compiled(ids), f(ids))
        ids[i % 3] += 10
        if i == 4:
            ids.append(9)


def test_within_a_device_context_and_a_mode():
    def f(ids):
        with torch.device("meta"):
            return torch.tensor(ids)

    compiled = magpy.compile(f, backend="eager")
    for ids in SAME_SIZE:
        got = compiled(ids)
        assert got.device.type == "meta" and got.shape == (3,)


def test_a_list_that_no_tensor_is_made_of_is_compared():
    def f(x, ids):
        return x.reshape(ids), torch.Size(ids), x.permute(ids)

    compiled = magpy.compile(f, backend="eager")
    x = torch.arange(24.0).reshape(2, 3, 4)
    for ids in ([2, 1, 0], [0, 2, 1], [1, 0, 2], [2, 0, 1]):
        y = x.reshape(-1)[: max(1, ids[0] * ids[1] * ids[2])] if 0 not in ids else x[:0]
        try:
            wanted = f(y, ids)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as caught:
                compiled(y, ids)
            assert str(caught.value) == str(error)
        else:
            assert_same(compiled(y, ids), wanted)


def test_gradients_flow_by_what_the_list_picks():
    w = torch.nn.Parameter(W.clone())

    def f(ids):
        return (w[torch.tensor(ids)] ** 2).sum()

    compiled = magpy.compile(f, backend="eager")
    for ids in OF_SIZES:
        compiled(ids).backward()
        got, w.grad = w.grad, None
        f(ids).backward()
        assert_same(got, w.grad)
        w.grad = None
    assert magpy.stats(compiled).captures == 2
