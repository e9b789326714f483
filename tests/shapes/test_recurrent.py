"""Recurrent layers given batches of other lengths: two captures serve all."""

import copy
import warnings

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt

KINDS = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "projected": (nn.LSTM, {"proj_size": 3}),
}
LENGTHS = [(2, 5), (2, 7), (3, 4), (4, 9), (2, 3), (5, 6)]


def layer(kind, **more):
    cls, how = KINDS[kind]
    torch.manual_seed(0)
    made = cls(4, 6, **{"num_layers": 2, "batch_first": True, **how, **more})
    with warnings.catch_warnings(action="ignore"):
        made.eval()(torch.zeros(2, 2, 4))  # torch warns once in a process
    return made.train()


def batch(shape, i):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(i))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_two_captures_serve_all_lengths(kind, bidirectional, batch_first):
    net = layer(kind, bidirectional=bidirectional, batch_first=batch_first)

    def f(x):
        out, last = net(x)
        return out.softmax(-1), last, out.shape, out.stride(), out.reshape(-1, 2).sum(0)

    c = magpy.compile(f, backend="eager")
    with torch.no_grad():
        for i, shape in enumerate(LENGTHS):
            assert_same(c(batch(shape, i)), f(batch(shape, i)))
    s = magpy.stats(c)
    assert (s.captures, s.hits, s.eager_calls) == (2, len(LENGTHS) - 2, 0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_captures_train_on_all_lengths(kind, backend):
    def world(compile):
        net, head = layer(kind, dropout=0.25), nn.Linear(3 if kind == "projected" else 6, 5)
        optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)

        def step(x):
            loss = head(net(x)[0].relu()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        c, found = compile(step), []
        torch.manual_seed(1)
        for i, shape in enumerate(LENGTHS):
            found.append(c(batch(shape, i)))
        return c, found, [p.detach() for p in net.parameters()], torch.get_rng_state()

    c, *ours = world(lambda f: magpy.compile(f, backend=backend))
    _, *theirs = world(lambda f: f)
    assert_same(ours, theirs, tol=0 if backend == "eager" else 1e-5)
    s = magpy.stats(c)
    assert (s.captures, s.hits, s.eager_calls) == (2, len(LENGTHS) - 2, 0)


def states(kind, shape):
    width = 3 if kind == "projected" else 6
    first = torch.ones(2, shape[0], width)
    return (first, torch.ones(2, shape[0], 6)) if kind in ("lstm", "projected") else first


@pytest.mark.parametrize("kind", KINDS)
def test_first_states_are_given_and_have_to_fit(kind):
    net = layer(kind)
    c = magpy.compile(lambda x, first: net(x, first), backend="eager")
    for i, shape in enumerate(LENGTHS):
        for wrong in (0, 1):
            first = states(kind, (shape[0] + wrong, shape[1]))
            ours = attempt(c, batch(shape, i), first)
            assert_same(ours, attempt(net, batch(shape, i), copy.deepcopy(first)))
    assert magpy.stats(c).hits >= len(LENGTHS) - 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast(kind, dtype):
    net = layer(kind)

    def f(x):
        with torch.autocast("cpu", dtype):
            out = net(x)[0]
        return out, out.dtype, out.flatten(0, 1).shape

    c = magpy.compile(f, backend="eager")
    with torch.no_grad():
        for i, shape in enumerate(LENGTHS):
            assert_same(attempt(c, batch(shape, i)), attempt(f, batch(shape, i)))


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_packed_sequences_and_transforms(kind):
    net = layer(kind)

    def one(x):
        return net(x[0])

    def packed(x):
        lengths = torch.arange(x.shape[0]) % x.shape[1] + 1
        given = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(net(given)[0], batch_first=True)

    def mapped(x):
        return torch.func.vmap(lambda y: net(y)[0])(x[:, None])

    for f in (one, packed, mapped):
        c = magpy.compile(f, backend="eager")
        with torch.no_grad():
            for i, shape in enumerate(LENGTHS):
                assert_same(attempt(c, batch(shape, i)), attempt(f, batch(shape, i)))
