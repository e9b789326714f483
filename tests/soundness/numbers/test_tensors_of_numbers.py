"""Tensors that a call makes of numbers which differ from call to call: two captures serve all."""

import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

W = torch.arange(200.0).reshape(40, 5)

# Of `n`, an argument that is another integer in every call, and `t`, of another size.
MADE = [
    "torch.tensor(n)",
    "torch.tensor([n])",
    "torch.tensor([[n, 3], [n + 1, n * 2]])",
    "torch.tensor(((n,), (5,)))",
    "torch.tensor([n], dtype=torch.int64, device='cpu')",
    "torch.tensor([n], dtype=torch.float32)",
    "torch.tensor([n, 4], dtype=torch.uint8)",
    "torch.tensor([n, 1.5])",
    "torch.tensor([n, True])",
    "torch.tensor([float(n)], requires_grad=True).detach()",
    "torch.tensor([n + i for i in range(20)])",
    "torch.as_tensor([n, n])",
    "torch.asarray([n, n])",
    "torch.scalar_tensor(n)",
    "W.new_tensor([n, 2])",
    "torch.LongTensor([n, 2])",
    "torch.FloatTensor([n, 2])",
    "torch.Tensor([n])",
    "torch.tensor(t.shape[0])",
    "torch.tensor(list(t.shape))",
    "torch.tensor(torch.cat([t, t]).mul(2).shape)",
    "torch.tensor([t.numel(), n])",
    "torch.tensor([n]).expand(4)",
    "torch.tensor([n]).add_(1)",
    "torch.nn.functional.one_hot(torch.tensor(n), 40)",
    "W[torch.tensor([n])]",
    "W[torch.tensor([[n, 0]])]",
    "torch.nn.functional.embedding(torch.tensor([[n]]), W)",
]


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("made", MADE)
def test_two_captures_serve_all_numbers(made, backend):
    f = eval(f"lambda n, t: ({made}, t.sum())", {"torch": torch, "W": W})
    compiled = magpy.compile(f, backend=backend)
    for n in (3, 7, 12, 20, 9, 31):
        t = torch.ones(n + 2, 3)
        assert_same(compiled(n, t), f(n, t))
    stats = magpy.stats(compiled)
    assert stats.captures == 2 and stats.hits == 4, stats
    assert stats.share == 1 or "t.shape" not in made


@pytest.mark.parametrize("n", [0, 1, -5, 2**31, 2**62, True, 2.5, float("nan"), 2**70])
def test_numbers_unlike_the_others(n):
    def f(n):
        return torch.tensor([n, 3]) * 2

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        assert_same(compiled(i + 3), f(i + 3))
    for _ in range(2):
        try:
            wanted = f(n)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                compiled(n)
        else:
            assert_same(compiled(n), wanted)


def test_a_number_that_a_dtype_cannot_hold_raises_as_in_eager():
    def f(n):
        return torch.tensor([n], dtype=torch.uint8) + 1

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        assert_same(compiled(i + 3), f(i + 3))
    with pytest.raises(RuntimeError) as wanted:
        f(300)
    with pytest.raises(RuntimeError) as got:
        compiled(300)
    assert str(got.value) == str(wanted.value)
    assert_same(compiled(9), f(9))


def test_the_default_device_and_dtype_are_those_of_the_call():
    def f(n):
        return torch.tensor([n]), torch.tensor([n, 0.5])

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        assert_same(compiled(i + 3), f(i + 3))
    with torch.device("meta"):
        assert compiled(20)[0].device.type == "meta"
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(21)[1].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(compiled(22), f(22))


def test_what_is_made_is_new_in_every_call():
    def f(n, kept):
        made = torch.tensor([n, n])
        kept.append(made)
        return made

    compiled, kept = magpy.compile(f, backend="eager"), []
    for i in range(5):
        got = compiled(i + 3, kept)
        assert got is kept[-1]
        got.add_(100)
    assert [t.tolist() for t in kept] == [[i + 103] * 2 for i in range(5)]
