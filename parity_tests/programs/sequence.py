"""Programs: recurrences, embeddings and other things along a sequence."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class RnnLoop(nn.Module):
    def __init__(self, inp, hidden):
        super().__init__()
        self.i2h = nn.Linear(inp + hidden, hidden)
        self.h2o = nn.Linear(hidden, 2)
        self.hidden_size = hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return weight.new(batch, self.hidden_size).zero_()

    def forward(self, x):
        hidden = self.init_hidden(x.shape[1])
        outputs = []
        for t in range(x.shape[0]):
            hidden = torch.tanh(self.i2h(torch.cat((x[t], hidden), 1)))
            outputs.append(self.h2o(hidden))
        return torch.stack(outputs), hidden


class LstmCells(nn.Module):
    """Stacked cells with dropout between them and states in lists."""

    def __init__(self, dim, layers):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(dim, dim) for _ in range(layers))
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        states = [(x.new_zeros(x.size(0), x.size(2)),) * 2 for _ in self.cells]
        for step in x.transpose(0, 1):
            for i, cell in enumerate(self.cells):
                states[i] = cell(step, states[i])
                step = self.drop(states[i][0])
        return step, states


class LibraryLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        self.rnn.flatten_parameters()
        out, (h, _) = self.rnn(x)
        return out[:, -1], torch.cat([h[-2], h[-1]], dim=1)


class PackedGru(nn.Module):
    """Sorts by length, packs, runs and puts the batch back in order."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, x, lengths):
        ordered, index = lengths.sort(descending=True)
        packed = pack_padded_sequence(x[index], ordered.tolist(), batch_first=True)
        out, hidden = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        _, back = index.sort()
        return out[back], hidden[:, back]


class BahdanauDecoder(nn.Module):
    """Greedy decoding for a fixed number of steps."""

    def __init__(self, vocab, dim, steps):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.cell = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, vocab)
        self.steps, self.bos = steps, 1

    def forward(self, hidden):
        token = torch.full((hidden.size(0),), self.bos, dtype=torch.long)
        tokens = []
        for _ in range(self.steps):
            hidden = self.cell(self.emb(token), hidden)
            token = self.out(hidden).argmax(dim=-1)
            tokens.append(token)
        return torch.stack(tokens, 1)


class CrfForward(nn.Module):
    """The forward algorithm with a mask."""

    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(torch.rand(tags))
        self.transitions = nn.Parameter(torch.rand(tags, tags))

    def forward(self, emissions, mask):
        score = self.start + emissions[:, 0]
        for i in range(1, emissions.size(1)):
            following = torch.logsumexp(
                score.unsqueeze(2) + self.transitions + emissions[:, i].unsqueeze(1), dim=1
            )
            score = torch.where(mask[:, i].unsqueeze(1), following, score)
        return torch.logsumexp(score, dim=1)


class CausalTcn(nn.Module):
    """Dilated causal convolutions; the padding's end is cut off."""

    def __init__(self, channels, levels):
        super().__init__()
        self.convs = nn.ModuleList()
        for i in range(levels):
            self.convs.append(
                nn.utils.parametrizations.weight_norm(
                    nn.Conv1d(channels, channels, 2, padding=2**i, dilation=2**i)
                )
            )

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            y = conv(x)[:, :, : -(2**i)]
            x = F.relu(x + F.relu(y))
        return x


class GatedWavenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3, padding=1)
        self.res, self.skip = nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)

    def forward(self, x):
        skip_sum = None
        for _ in range(2):
            gate, filt = self.conv(x).split(2, dim=1)
            h = torch.sigmoid(gate) * torch.tanh(filt)
            skip_sum = self.skip(h) if skip_sum is None else skip_sum + self.skip(h)
            x = x + self.res(h)
        return skip_sum


class PositionalEmbedding(nn.Module):
    def __init__(self, vocab, dim, max_len=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.seg = nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(max_len).expand((1, -1)))

    def forward(self, ids, token_type_ids=None, past=0):
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(ids)
        positions = self.position_ids[:, past : past + ids.size(1)]
        return self.norm(self.tok(ids) + self.pos(positions) + self.seg(token_type_ids))


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="mean")
        self.fc = nn.Linear(4, 2)

    def forward(self, text, offsets):
        return F.log_softmax(self.fc(self.bag(text, offsets)), dim=1)


class CharCnn(nn.Module):
    def __init__(self, sizes=(2, 3)):
        super().__init__()
        self.emb = nn.Embedding(12, 4)
        self.convs = nn.ModuleList([nn.Conv2d(1, 3, (k, 4)) for k in sizes])

    def forward(self, x):
        x = self.emb(x).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(item, item.size(2)).squeeze(2) for item in x]
        return torch.cat(x, 1)


class Highway(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim * 2) for _ in range(layers)])
        for layer in self.layers:
            layer.bias[dim:].data.fill_(1)

    def forward(self, x):
        for layer in self.layers:
            new, gate = layer(x).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            x = gate * x + (1 - gate) * F.relu(new)
        return x


class MaskedMean(nn.Module):
    """Mean over the valid steps, the mask made from lengths."""

    def forward(self, x, lengths):
        mask = (torch.arange(x.size(1))[None, :] < lengths[:, None]).unsqueeze(-1).type_as(x)
        return (x * mask).sum(1) / mask.sum(1).clamp(min=1)


class PadsList(nn.Module):
    """A list of sequences of different lengths is padded and projected."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, sequences):
        lengths = [len(s) for s in sequences]
        padded = pad_sequence(sequences, batch_first=True, padding_value=-1.0)
        return self.fc(padded), torch.tensor(lengths)


class BidirectionalByFlip(nn.Module):
    def __init__(self):
        super().__init__()
        self.fw, self.bw = nn.GRU(3, 2), nn.GRU(3, 2)

    def forward(self, x):
        left, _ = self.fw(x)
        right, _ = self.bw(x.flip(0))
        return torch.cat([left, right.flip([0])], -1)


class MinGru(nn.Module):
    """A recurrence computed by cumulative sums of logarithms."""

    def __init__(self, dim):
        super().__init__()
        self.z, self.h = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        z = torch.sigmoid(self.z(x))
        log_a = torch.log1p(-z.clamp(max=1 - 1e-4))
        a_star = log_a.cumsum(1)
        log_b = torch.log(z + 1e-6) + F.logsigmoid(self.h(x))
        return torch.exp(a_star + torch.logcumsumexp(log_b - a_star, dim=1))


class ReverseEncoder(nn.Module):
    """Runs a Python loop backwards with slices and index tricks."""

    def forward(self, x):
        carry = torch.zeros_like(x[:, 0])
        result = torch.empty_like(x)
        for t in reversed(range(x.size(1))):
            carry = 0.5 * carry + x[:, t]
            result[:, t] = carry
        return result


TESTCASES = [
    (RnnLoop, lambda: ([3, 4], {}), lambda: ([torch.rand(5, 2, 3)], {}), True),
    (LstmCells, lambda: ([4, 2], {}), lambda: ([torch.rand(2, 3, 4)], {}), True),
    (LibraryLstm, lambda: ([], {}), lambda: ([torch.rand(2, 3, 4)], {}), True),
    (
        PackedGru,
        lambda: ([], {}),
        lambda: ([torch.rand(3, 5, 4), torch.tensor([2, 5, 3])], {}),
        True,
    ),
    (BahdanauDecoder, lambda: ([6, 4, 3], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        CrfForward,
        lambda: ([3], {}),
        lambda: ([torch.rand(2, 4, 3), torch.ones(2, 4, dtype=torch.bool)], {}),
        True,
    ),
    (CausalTcn, lambda: ([2, 2], {}), lambda: ([torch.rand(2, 2, 6)], {}), True),
    (GatedWavenet, lambda: ([], {}), lambda: ([torch.rand(2, 2, 6)], {}), True),
    (
        PositionalEmbedding,
        lambda: ([10, 4], {}),
        lambda: ([torch.randint(0, 10, (2, 5))], {"past": 2}),
        True,
    ),
    (
        BagOfWords,
        lambda: ([], {}),
        lambda: ([torch.randint(0, 10, (6,)), torch.tensor([0, 2, 5])], {}),
        True,
    ),
    (CharCnn, lambda: ([], {}), lambda: ([torch.randint(0, 12, (2, 6))], {}), True),
    (Highway, lambda: ([4, 2], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (MaskedMean, lambda: ([], {}), lambda: ([torch.rand(2, 4, 3), torch.tensor([2, 4])], {}), True),
    (
        PadsList,
        lambda: ([], {}),
        lambda: ([[torch.rand(2, 3), torch.rand(4, 3), torch.rand(1, 3)]], {}),
        True,
    ),
    (BidirectionalByFlip, lambda: ([], {}), lambda: ([torch.rand(4, 2, 3)], {}), True),
    (MinGru, lambda: ([3], {}), lambda: ([torch.rand(2, 4, 3)], {}), True),
    (ReverseEncoder, lambda: ([], {}), lambda: ([torch.rand(2, 4, 3)], {}), True),
]
