"""Functions of the program that torch's own Python wraps, and torch's code that nobody watches.

Decorators of torch make a function around one that is defined in the call; torch.fx and TorchDynamo
run below a line that is left to Python. Each call sees its own tensors and objects.
"""

import pytest
import torch
import torch._dynamo
import torch.fx
from torch import nn

import magpy

K = {"scale": 1.0}
LOG = []


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def with_an_odd_line(x):
    y = x + 1
    with open("/dev/null", "w") as f:
        f.write("x")
    return y * 2


def disabled(x):
    @torch.compiler.disable
    def add():
        return with_an_odd_line(x)

    return add()


def disabled_but_not_what_it_calls(x):
    @torch.compiler.disable(recursive=False)
    def add(y):
        LOG.append(len(LOG))
        return with_an_odd_line(x) * y

    return add(x * 2)


def kept(x):
    @torch.compiler.disable
    def add(y):
        return x + y

    return add


def kept_and_called(x):
    return kept(x)(x * 3)


def linearized(x):
    out, derivative = torch.func.linearize(torch.sin, x)
    return out, derivative(torch.ones_like(x))


def overridable(x):
    @torch.overrides.wrap_torch_function(lambda a: (a,))
    def inner(a):
        LOG.append(a.shape)
        return a * K["scale"] + x

    return inner(x * 2)


@torch.overrides.wrap_torch_function(lambda x, n: (x,))
def own_operation(x, n):
    LOG.append(n)
    return x * K["scale"] + n


def of_a_module(x):
    return own_operation(x, len(LOG)) * 2


def hands_itself_over(x):
    def op(y):
        if torch.overrides.has_torch_function((y,)):
            return torch.overrides.handle_torch_function(op, (y,), y)
        LOG.append("seen")
        return y * K["scale"] - x

    return op(x * 2)


NET = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
TRACED = torch.fx.symbolic_trace(NET)


def interpreted(x):
    return torch.fx.Interpreter(TRACED).run(x)


def traced_in_the_call(x):
    graph = torch.fx.symbolic_trace(lambda y: torch.sin(y) * 2)
    return graph(x)


class OddLayer(nn.Module):
    def forward(self, x):
        return with_an_odd_line(x)


class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m, name):
        return isinstance(m, OddLayer)


ODD = nn.Sequential(OddLayer(), nn.Linear(2, 2))
ODD_GRAPH = torch.fx.GraphModule(ODD, Tracer().trace(ODD))


def graph_with_an_odd_line(x):
    return ODD_GRAPH(x).relu()


def interpreted_with_an_odd_line(x):
    return torch.fx.Interpreter(ODD_GRAPH).run(x)


PROGRAMS = [
    *(disabled, disabled_but_not_what_it_calls, kept_and_called, linearized, overridable),
    *(of_a_module, hands_itself_over, interpreted, traced_in_the_call, graph_with_an_odd_line),
    interpreted_with_an_odd_line,
]


def _called(f, values):
    LOG.clear()
    results = []
    for i, (rows, value) in enumerate(values):
        K["scale"] = 1.0 if i < 5 else 3.0
        results.append(f(torch.full((rows, 2), value)))
    return results, list(LOG)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_each_call_sees_its_own(program):
    values = [(2, 1.0), (2, 1.0), (2, 1.0), (2, 2.0), (3, 3.0), (3, 0.5), (4, 4.0)]
    with torch.no_grad():
        expected, log = _called(program, values)
        found, seen = _called(magpy.compile(program, backend="eager"), values)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert seen == log


def test_a_function_that_is_given_back_is_that_of_its_call():
    compiled = magpy.compile(kept, backend="eager")
    for value in (1.0, 1.0, 2.0, 3.0):
        x = torch.full((2,), value)
        assert torch.equal(compiled(x)(x), x + x)
