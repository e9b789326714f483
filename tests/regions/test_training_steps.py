"""Training steps of which a line runs in Python: what is around it stays one region.

Owns how many captures such steps need and which lines are left to Python.  Does not own the
regions of other programs (tests/regions/test_places.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


def state(net):
    return [
        (p.detach().clone(), None if p.grad is None else p.grad.clone()) for p in net.parameters()
    ]


def line_of(text):
    """The number of a line of this file."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.strip() == text)


def test_a_backward_pass_stays_in_its_region_where_another_line_is_refused():
    """What torch itself calls below an operation is not refused, whatever was before."""

    def make(compile):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def epoch(batches):
            losses = []
            for x in batches:
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return sum(losses)

        return net, compile(epoch)

    def batches(i):
        torch.manual_seed(i)
        yield from (torch.randn(3, 4) for _ in range(3))

    compile = lambda f: magpy.compile(f, backend="eager")  # noqa: E731
    (wanted, eager), (net, compiled) = make(lambda f: f), make(compile)
    for i in range(6):
        assert_same(compiled(batches(i)), eager(batches(i)))
        assert_same(state(net), state(wanted))
    stats = magpy.stats(compiled)
    lines = {line.split(":")[1].split(" ")[0] for line, _ in stats.in_python}
    assert str(line_of("loss.backward()")) not in lines
    assert stats.captures <= 4
    assert stats.share > 0.9


def test_what_calls_hooks_of_modules_has_no_regions_of_its_own():
    def make(compile):
        net, norms = model(), []
        net[2].register_full_backward_hook(lambda m, i, o: norms.append(o[0].abs().max().item()))

        def step(x):
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss.detach()

        return net, norms, compile(step)

    wanted, norms, eager = make(lambda f: f)
    net, found, compiled = make(lambda f: magpy.compile(f, backend="eager"))
    for _ in range(8):
        x = torch.randn(3, 4)
        assert_same(compiled(x), eager(x))
        assert_same((state(net), found), (state(wanted), norms))
    stats = magpy.stats(compiled)
    assert stats.captures <= 10
    assert stats.hits >= 4


class Refused:
    """An iterator whose items only Python can give."""

    def __init__(self, n):
        self.left = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        generator = torch.Generator()
        generator.manual_seed(self.left)
        return torch.randn(3, 4, generator=generator)


def loader(n):
    data = torch.arange(12.0 * n).reshape(3 * n, 4) / 12
    return torch.utils.data.DataLoader(data, batch_size=3, shuffle=True)


def plain(net, optimizer, batches):
    total = 0.0
    for x in batches:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def counted(net, optimizer, batches):
    total = 0.0
    for i, x in enumerate(batches):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.item() * i
    return total


@pytest.mark.parametrize("epoch", [plain, counted])
@pytest.mark.parametrize("source", [Refused, loader])
def test_the_step_of_a_loop_over_what_python_gives_is_one_region(source, epoch):
    def make(compile):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        return net, compile(lambda batches: epoch(net, optimizer, batches))

    (wanted, eager) = make(lambda f: f)
    net, compiled = make(lambda f: magpy.compile(f, backend="eager"))
    for n in (3, 4, 3, 2, 5, 3):
        torch.manual_seed(n)
        want = eager(source(n))
        torch.manual_seed(n)
        assert_same(compiled(source(n)), want)
        assert_same(state(net), state(wanted))
    stats = magpy.stats(compiled)
    first = epoch.__code__.co_firstlineno + 2
    lines = {int(line.split(":")[1].split(" ")[0]) for line, _ in stats.in_python}
    assert first in lines and not lines & set(range(first + 1, first + 6)), lines
    assert stats.captures <= 5 and stats.share > 0.6, stats


class Heard(torch.Tensor):
    """A class that hears of each operation on its tensors."""

    names: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.names.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Decides(torch.autograd.Function):
    """Its backward pass looks at data, and is refused for that."""

    @staticmethod
    def forward(ctx, t):
        return t * 2

    @staticmethod
    def backward(ctx, g):
        return g * (2 if g.sum() > 0 else 3)


def test_a_class_of_tensors_hears_of_nothing_but_the_programs_operations():
    def step(x):
        loss = Decides.apply(x.as_subclass(Heard)).sum()
        loss.backward()
        return x.grad

    compiled = magpy.compile(step, backend="eager")
    for _ in range(5):
        heard = []
        for f in (step, compiled):
            Heard.names.clear()
            f(torch.ones(3, requires_grad=True))
            heard.append(list(Heard.names))
        assert heard[0] == heard[1]
