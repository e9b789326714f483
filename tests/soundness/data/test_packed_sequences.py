"""Packed sequences of other batch sizes, lengths and orders: how they lie is data.

torch's fake kernels of recurrent networks ask for that data, and hold sizes to what it is there.
"""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import magpy
from tests.comparison import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")


def tagger(kind, **options):
    torch.manual_seed(0)
    emb, rnn, out = nn.Embedding(30, 8), kind(8, 8, batch_first=True, **options), nn.Linear(8, 5)

    def f(ids, lens):
        packed = pack_padded_sequence(emb(ids), lens, batch_first=True, enforce_sorted=False)
        y, hidden = rnn(packed)
        y, n = pad_packed_sequence(y, batch_first=True)
        return out(y).argmax(-1), n, hidden

    return f


@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph.forward])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {}), (nn.LSTM, {"num_layers": 2}), (nn.GRU, {}), (nn.RNN, {"nonlinearity": "relu"})],
)
def test_three_captures_serve_all_batches(kind, options, backend):
    f = tagger(kind, **options)
    compiled = magpy.compile(f, backend=backend)
    for i in range(14):
        torch.manual_seed(i)
        size = 2 + i % 3, 6 + i % 4
        ids, lens = torch.randint(0, 30, size), torch.randint(1, size[1] + 1, size[:1])
        assert_same(compiled(ids, lens), f(ids, lens))
    stats = magpy.stats(compiled)
    assert stats.captures <= 3 and not stats.eager_calls, stats


@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph.forward])
def test_a_sequence_without_elements_raises_as_in_eager(backend):
    f = tagger(nn.LSTM)
    compiled = magpy.compile(f, backend=backend)
    for n in (2, 3, 4, 3, 5):
        ids, lens = torch.randint(0, 30, (n, 9)), torch.arange(1, n + 1)
        assert_same(compiled(ids, lens), f(ids, lens))
        lens[-1] = 0
        with pytest.raises(RuntimeError, match="greater than 0"):
            compiled(ids, lens)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_padded_sequences_are_followed_as_before(kind):
    torch.manual_seed(0)
    rnn = kind(8, 8)
    compiled = magpy.compile(rnn, backend=lambda graph, inputs: graph.forward)
    for i in range(10):
        rows = [torch.randn(2 + (i + k) % 4, 8) for k in range(2 + i % 3)]
        x = pad_sequence(rows)
        assert_same(compiled(x), rnn(x))
    assert magpy.stats(compiled).captures <= 3
