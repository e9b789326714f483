"""Hooks that a call gives to what it has computed: they run compiled in the pass that it makes.

Saliency, gradients that are clipped or scaled on their way, statistics of gradients.
"""

import functools
import io
import traceback

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def kept(h, seen):
    h.register_hook(lambda g: seen.update(h=g.abs().mean(0)))


def scaled(h, seen):
    h.register_hook(lambda g: g * 2 + g.clamp(-0.1, 0.1))


def odd(h, seen):
    def hook(g):
        size = len(io.BytesIO(b"ab").read())
        return (g / size).tanh()

    h.register_hook(hook)


def several(h, seen):
    for i in range(3):
        h.register_hook(functools.partial(lambda i, g: g + i, i))


def removed(h, seen):
    first = h.register_hook(lambda g: g * 3)
    h.register_hook(lambda g: g.sin())
    first.remove()


class Watch:
    def __init__(self):
        self.norms = []

    def hook(self, g):
        self.norms.append(g.norm())
        return g.sign() * g.abs().sqrt()

    def __call__(self, h, seen):
        h.register_hook(self.hook)
        seen["norms"] = self.norms


def world(given):
    torch.manual_seed(0)
    before, after = nn.Linear(8, 8), nn.Linear(8, 4)

    def step(x):
        seen = {}
        h = torch.relu(before(x))
        given(h, seen)
        after(h).square().sum().backward()
        return seen

    return step, [*before.parameters(), *after.parameters()]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make", [lambda: kept, lambda: scaled, lambda: odd, lambda: several, lambda: removed, Watch]
)
def test_as_eager(make, backend):
    (eager, own), (step, parameters) = world(make()), world(make())
    compiled = magpy.compile(step, backend=backend)
    for i in range(6):
        x = torch.full((3, 8), i / 3)
        assert_same(compiled(x), eager(x))
        assert_same([p.grad for p in parameters], [p.grad for p in own])
    stats = magpy.stats(compiled)
    assert stats.share > 0.5 and stats.hits, stats


def test_the_hooks_operations_are_in_graphs():
    step, _ = world(kept)
    compiled = magpy.compile(step, backend="eager")
    for _ in range(6):
        compiled(torch.ones(3, 8))
    functions = [
        c._magpy_wrapped.__qualname__
        for c in compiled._magpy_options.drivers.compiled()
        if c._magpy_hits
    ]
    assert any("<lambda>" in name for name in functions), functions


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_a_hook_raises(backend):
    def given(h, seen):
        h.register_hook(lambda g: g @ g)

    texts = []
    for f in (world(given)[0], magpy.compile(world(given)[0], backend=backend)):
        for _ in range(6):
            with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
                f(torch.ones(3, 8))
        texts.append([e.name for e in traceback.extract_tb(caught.value.__traceback__)][1:])
    assert texts[0] == texts[1]


def test_wrong_arguments_raise_as_in_eager():
    def given(h, seen):
        h.register_hook()

    errors = []
    for f in (world(given)[0], magpy.compile(world(given)[0], backend="eager")):
        for _ in range(3):
            with pytest.raises(TypeError) as caught:
                f(torch.ones(3, 8))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_hook_of_what_no_gradient_comes_to(backend):
    """A compiler makes one node of autograd's of all that a region gives."""
    torch.manual_seed(0)
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)

    def f(x, heard):
        y, z = one(x), other(x)
        y.register_hook(lambda g: heard.append(g))
        z.sum().backward()
        return x.grad.clone()

    compiled = magpy.compile(f, backend=backend)
    for _ in range(6):
        heard, x = [], torch.ones(3, 4, requires_grad=True)
        gradient = compiled(x, heard)
        assert heard == []
        x.grad = None
        torch.testing.assert_close(gradient, f(x, heard))


def test_a_subclass_hears_of_what_the_program_asks_alone():
    class Logged(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(getattr(func, "__name__", func))
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.ones(3, requires_grad=True)
    picks = torch.tensor(0.5).as_subclass(Logged)

    def f(x):
        y = x * picks
        y.register_hook(lambda g: g * 2)
        return y

    heard = []
    for call in (f, magpy.compile(f, backend="eager")):
        for _ in range(4):
            Logged.seen.clear()
            call(x)
            heard.append(list(Logged.seen))
    assert heard[:4] == heard[4:]
