"""Functions that the program makes anew in each call, below lines that are left to Python.

Solvers, optimizers and checkpoints are given such closures; a line in what these call is Python's.
Owns that the rest of a closure, and of what it calls, is compiled, whatever its cells hold.
"""

import gc
import os
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

local = threading.local()


def odd(t):
    """What no guard can compare: a line that calls it is Python's."""
    return t if getattr(local, "name", None) is None else -t


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = self.inner(x).tanh() * 0.5
        odd(h)
        return self.outer(h).sigmoid() + x


def heun(f, x, steps):
    for i in range(steps):
        k = f(i / steps, x)
        x = x + (k + f((i + 1) / steps, x + k / steps)) / (2 * steps)
    return x


class Program:
    """A model, what the calls leave behind, and an optimizer."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = Net()
        self.seen = []
        self.sgd = torch.optim.SGD(self.net.parameters(), 0.01)
        self.lbfgs = torch.optim.LBFGS(self.net.parameters(), 0.01, max_iter=2)

    def solver(self, x, k):
        return heun(lambda t, y: self.net(y) * t + x * 0.1, x, 2)

    def function(self, x, k):
        scale = x.mean() + 1

        def rhs(t, y):
            h = self.net(y * scale)
            odd(h)
            return h * t

        return heun(rhs, x, 2)

    def default(self, x, k):
        def rhs(t, y, gain=k + 1, *, shift=0.5):
            h = self.net(y) * gain
            odd(h)
            return h * t - shift

        return heun(rhs, x, 1)

    def nonlocal_in_it(self, x, k):
        calls = 0

        def rhs(t, y):
            nonlocal calls
            calls += 1
            h = self.net(y)
            odd(h)
            return h * t + calls

        y = heun(rhs, x, 2)
        return y, calls

    def nonlocal_beside_it(self, x, k):
        total = x * 0

        def count(y):
            nonlocal total
            total = total + y.sum()

        def rhs(t, y):
            h = self.net(y)
            odd(h)
            count(h)
            return h * t + total

        return heun(rhs, x, 2), total

    def comprehension(self, x, k):
        weights = [x * 0.1, x * 0.2]

        def rhs(t, y):
            odd(y)
            return sum([w * self.net(y) for w in weights]) * t

        return heun(rhs, x, 1)

    def kept_function(self, x, k):
        made = []

        def rhs(t, y):
            odd(y)
            h = self.net(y) + x
            made.append(lambda z: z + x + h)
            return h * t

        y = heun(rhs, x, 1)
        return y, [f(x) for f in made]

    def late_variable(self, x, k):
        def rhs(t, y):
            odd(y)
            return self.net(y) * factor * t

        factor = x + 1
        first = heun(rhs, x, 1)
        factor = x + 2
        return first, heun(rhs, x, 1)

    def unbound(self, x, k):
        def rhs(t, y):
            odd(y)
            h = self.net(y)
            self.seen.append(h.detach())
            return h * late

        try:
            heun(rhs, x, 1)
        except NameError as e:
            message = str(e)
        late = x + 1
        return heun(rhs, x, 1), message

    def emptied_while_it_waits(self, x, k):
        def parts(asks):
            yield self.net(x)
            odd(x)
            yield self.net(x) + 1
            self.seen.append(asks)
            if asks:
                yield scale * self.net(x)  # noqa: F821 - it may be bound

        found, scale = [], 2
        for asks in (False, True):
            scale = 2
            steps = parts(asks)
            found.append(next(steps))
            del scale
            try:
                found += steps
            except NameError as e:
                found.append(str(e))
        return found

    def loop(self, x, k):
        made = []
        for j in range(3):

            def rhs(t, y):
                odd(y)
                return self.net(y) * t + j

            made.append(rhs)
        return [heun(f, x, 1) for f in made]

    def many(self, x, k):
        def scaled(by):
            def rhs(t, y):
                odd(y)
                return self.net(y) * t * by

            return rhs

        return [heun(scaled(by), x, 1) for by in (1.0, 2.0, x)]

    def raises(self, x, k):
        def rhs(t, y):
            h = self.net(y)
            odd(h)
            if k % 3 == 2:
                raise ValueError(f"{k} of {tuple(h.shape)}")
            return h * t

        return heun(rhs, x, 1)

    def generator(self, x, k):
        def parts(y):
            odd(y)
            for i in range(3):
                yield self.net(y) * i + x

        return sum(parts(x))

    def sorted_by(self, x, k):
        rows = list(x.detach())
        return sorted(rows, key=lambda r: self.net(r).sum().item())

    def checkpointed(self, x, k):
        def custom_forward(*inputs):
            return self.net(*inputs) * 2

        y = checkpoint(custom_forward, x, use_reentrant=False)
        return y, torch.autograd.grad(y.sum(), [*self.net.parameters()])

    def step_with_closure(self, x, k):
        def closure():
            self.sgd.zero_grad()
            loss = (self.net(x) - x).square().mean()
            loss.backward()
            return loss

        loss = self.sgd.step(closure)
        return loss, [p.detach().clone() for p in self.net.parameters()]

    def lbfgs_step(self, x, k):
        def closure():
            self.lbfgs.zero_grad()
            loss = (self.net(x) - x).square().mean()
            loss.backward()
            return loss

        self.lbfgs.step(closure)
        return [p.detach().clone() for p in self.net.parameters()]


PROGRAMS = [n for n in vars(Program) if n[0] != "_"]
#: Programs of which most operations run in graphs.
IN_GRAPHS = ["solver", "function", "default", "comprehension", "many", "checkpointed"]


def outcome(f, *args):
    try:
        return f(*args)
    except ValueError as e:
        return str(e), [entry.name for entry in pytest.ExceptionInfo.from_exception(e).traceback][
            2:
        ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_closures_run_in_part(program, backend, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    mine, theirs = Program(), Program()
    compiled = magpy.compile(getattr(mine, program), backend=backend)
    for i in range(12):
        torch.manual_seed(i)
        x = torch.randn(3, 4, requires_grad=i % 2 == 1)
        if i > 8:
            local.name = "other"
        try:
            assert_same(outcome(compiled, x, i), outcome(getattr(theirs, program), x, i))
        finally:
            local.__dict__.clear()
        assert_same(mine.seen, theirs.seen)
    if program in IN_GRAPHS:
        assert magpy.stats(compiled).share >= 0.8


EXPRESSIONS = {
    "list": lambda net, x: torch.stack([net(row) * 2 for row in x]),
    "argument": lambda net, x: sum([net(row) for row in x]) * 2,
    "generator": lambda net, x: sum(net(row) for row in x) * 2,
    "dict": lambda net, x: {i: net(x[i]) for i in range(3)},
    "nested": lambda net, x: [[net(row) + i for i in range(2)] for row in x],
    "condition": lambda net, x: [net(row) for row in x if row.numel()][0],
    "map": lambda net, x: list(map(lambda row: net(row) * 2, x)),
    "key": lambda net, x: min(list(x.detach()), key=lambda row: net(row).sum().item()),
    "called": lambda net, x: (lambda y: net(y) * 2)(x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_expressions_with_frames_of_their_own_call_is_compiled(expression, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    torch.manual_seed(0)
    net, f = Net(), EXPRESSIONS[expression]
    compiled = magpy.compile(f, backend="eager")
    for i in range(12):
        x = torch.randn(3, 4) + i
        assert_same(compiled(net, x), f(net, x))
    assert magpy.stats(compiled).share >= 0.7


def test_what_the_first_closures_held_dies(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    program = Program()
    held = []

    def f(x):
        kept = x + 1
        held.append(weakref.ref(kept))
        return heun(lambda t, y: program.net(y) * t + kept, x, 1)

    compiled = magpy.compile(f, backend="eager")
    for i in range(6):
        compiled(torch.randn(3, 4) + i)
    gc.collect()
    assert magpy.stats(compiled).regions
    assert [r() for r in held] == [None] * 6


def test_functions_of_one_decorator_that_call_each_other(monkeypatch):
    """The driver of what is called is that of its caller's code, with other cells."""
    monkeypatch.setattr(magpy.config, "regions", True)

    @torch.no_grad()
    def inner(shape, scale):
        x = torch.ones(shape)
        os.listdir("/dev")  # a line that is refused
        return x * scale

    @torch.no_grad()
    def sample(rows):
        return inner((rows, 3), rows + 1) + inner((rows, 3), 2)

    compiled = magpy.compile(sample, backend="eager")
    for rows in (2, 5, 4, 8, 3, 6, 7, 2, 5):
        assert torch.equal(compiled(rows), sample(rows))
    assert magpy.stats(compiled).share > 0
