"""How many graphs a served call runs: none is cut for nothing, and none runs in vain."""

import torch

import magpy


def test_sizes_that_vary_do_not_cut_a_graph_in_inference_mode():
    linear = torch.nn.Linear(8, 8)

    def f(x):
        with torch.inference_mode():
            h = linear(x)
            b, n, _ = h.shape
            h = linear(torch.relu(h.view(b, n, 2, 4).transpose(1, 2)).reshape(b, n, 8))
            return h.view(b, n, 2, 4).transpose(1, 2).contiguous().relu().sum(-1)

    compiled = magpy.compile(f, backend=lambda gm, inputs: gm.forward)
    for b, n in ((2, 5), (3, 6), (4, 7)):
        x = torch.randn(b, n, 8)
        assert torch.equal(compiled(x), f(x))
        assert compiled(x).is_inference()
    stats = magpy.stats(compiled)
    assert stats.captures == 2 and stats.segments == [1, 1], stats


def test_the_length_of_a_list_that_follows_from_data_is_known_before_a_graph_runs():
    linear, runs = torch.nn.Linear(8, 2), []

    def f(x):
        return linear(x).softmax(-1).tolist()

    def backend(gm, inputs):
        return lambda *args: runs.append(1) or gm(*args)

    compiled = magpy.compile(f, backend=backend)
    for b in (2, 3, 4, 3, 4, 3, 4):
        x = torch.randn(b, 8)
        before = len(runs)
        assert compiled(x) == f(x)
        assert len(runs) - before <= 1
    assert runs
