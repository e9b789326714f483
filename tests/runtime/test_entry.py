"""Runners of graphs, without a capture."""

import torch
from torch import fx

from magpy.backends.runner import EntryInfo, Runner
from magpy.replay.segments import Segment


def runner():
    """One whose compiler's graph gives nothing, and whose own doubles its input."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mul, (x, 2)),))
    segment = Segment(0, [], [], graph, 1)
    return Runner(segment, lambda gm, inputs: lambda *given: (), EntryInfo(None, [segment]))


def test_a_graph_runs_for_inputs_that_require_grad_as_those_it_was_compiled_for():
    made = runner()
    x = torch.ones(2, requires_grad=True)
    run = made._as_compiled_for(lambda *given: ("compiled",), [x])
    assert run(x) == ("compiled",)
    assert made.segment.compiled(x) == ("compiled",)
    assert not made.segment.native


def test_python_runs_a_graph_that_was_compiled_for_inputs_without_gradients():
    made = runner()
    run = made._as_compiled_for(lambda *given: ("compiled",), [torch.ones(2)])
    x = torch.ones(2, requires_grad=True)
    (result,) = run(x)
    assert result.requires_grad
    assert torch.equal(result, x * 2)
    assert made.segment.native
    assert made.segment.compiled(x)[0].requires_grad
