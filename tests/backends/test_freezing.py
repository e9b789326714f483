"""Parameters folded into a graph."""

import copy

import pytest
import torch
from torch import nn

import magpy

pytestmark = pytest.mark.slow


def network():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    return net.eval()


def folded(net, x):
    c = magpy.compile(net, options={"freezing": True})
    for _ in range(3):
        torch.testing.assert_close(c(x), net(x))
    assert magpy.stats(c).reasons == []
    return c


CHANGES = {
    "in place": lambda net: net[0].weight.mul_(2),
    "a state dict": lambda net: net.load_state_dict(
        {k: v + 1 for k, v in copy.deepcopy(net.state_dict()).items()}
    ),
    "other memory": lambda net: setattr(net[3].bias, "data", torch.ones(4)),
    "another parameter": lambda net: setattr(net[3], "bias", nn.Parameter(torch.ones(4))),
    "a buffer": lambda net: net[1].running_mean.fill_(3.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_noticed(change):
    net, x = network(), torch.randn(5, 8)
    with torch.no_grad():
        c = folded(net, x)
        before = c(x)
        CHANGES[change](net)
        for _ in range(3):
            torch.testing.assert_close(c(x), net(x))
        assert not torch.allclose(c(x), before)
        CHANGES[change](net)
        torch.testing.assert_close(c(x), net(x))


def test_weights_are_constants_of_the_graph(monkeypatch):
    from magpy.backends import inductor

    seen = []
    compile_graph = inductor.compile_graph

    def watched(gm, inputs, patches, mode=None):
        seen.append((len(inputs), len(list(gm.parameters()))))
        return compile_graph(gm, inputs, patches, mode)

    monkeypatch.setattr(inductor, "compile_graph", watched)
    net, x = network(), torch.randn(5, 8)
    with torch.no_grad():
        folded(net, x)
    assert seen[0][0] == 1
    assert seen[0][1] >= 4
    seen.clear()
    torch.testing.assert_close(folded(net, x)(x), net(x))
    assert seen[0][1] == 0, "with gradients the weights stay inputs"


def test_results_that_are_weights():
    def f(x):
        return x @ net[0].weight, net[0].weight, net[0].bias.view(2, 4)

    net, x = network(), torch.randn(3, 8)
    with torch.no_grad():
        c = magpy.compile(f, options={"freezing": True})
        for _ in range(3):
            y, weight, bias = c(x)
            torch.testing.assert_close(y, f(x)[0])
            assert weight is net[0].weight
            assert bias.data_ptr() == net[0].bias.data_ptr()


def test_what_changes_in_every_call_is_not_folded_for_long():
    net, ref = network(), network()
    net.train()
    ref.train()
    x = torch.randn(5, 8)
    with torch.no_grad():
        c = magpy.compile(net, options={"freezing": True})
        for _ in range(4):
            torch.testing.assert_close(c(x), ref(x))
        torch.testing.assert_close(net.state_dict(), ref.state_dict())
    assert magpy.stats(c).reasons == []


def test_inference_tensors_are_not_folded():
    with torch.inference_mode():
        net, x = network(), torch.randn(5, 8)
        c = folded(net, x)
        net[0].weight.mul_(2)
        torch.testing.assert_close(c(x), net(x))
