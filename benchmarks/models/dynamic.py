"""Models whose Python decides what runs: loops over steps, and branches on tensor data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.case import Case
from benchmarks.models.static import BasicBlock


class Attention(nn.Module):
    """Additive attention of one query over all encoder states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.query(query).unsqueeze(1) + self.key(keys)))
        return (F.softmax(scores, 1) * keys).sum(1)


class Seq2Seq(nn.Module):
    """Recurrent encoder; decoder that feeds its best word back, step by step, in Python."""

    def __init__(self, vocabulary: int = 200, width: int = 64, steps: int = 12) -> None:
        super().__init__()
        self.steps, self.width = steps, width
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRUCell(width, width)
        self.decoder = nn.GRUCell(2 * width, width)
        self.attention = Attention(width)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(ids.shape[0], self.width, device=ids.device)
        states = []
        for t in range(ids.shape[1]):
            h = self.encoder(self.embedding(ids[:, t]), h)
            states.append(h)
        keys = torch.stack(states, 1)
        word = torch.ones(ids.shape[0], dtype=torch.long, device=ids.device)
        words, logits = [], []
        for _ in range(self.steps):
            h = self.decoder(torch.cat([self.embedding(word), self.attention(h, keys)], 1), h)
            logit = self.out(h)
            word = logit.argmax(1)
            words.append(word)
            logits.append(logit)
        return torch.stack(words, 1), torch.stack(logits, 1)


class LSTM(nn.Module):
    """Stacked LSTM cells written out, over a Python loop of time steps and layers."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.ModuleList(nn.Linear(2 * width, 4 * width) for _ in range(layers))

    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        zero = torch.zeros(x.shape[0], self.width, device=x.device)
        state = [(zero, zero) for _ in self.gates]
        for step in x.unbind(1):
            value = step
            for i, gate in enumerate(self.gates):
                h, c = state[i]
                a, b, g, o = gate(torch.cat([value, h], 1)).chunk(4, 1)
                c = torch.sigmoid(a) * c + torch.sigmoid(b) * torch.tanh(g)
                value = torch.sigmoid(o) * torch.tanh(c)
                state[i] = (value, c)
        return state[-1][0], state


class BlockDrop(nn.Module):
    """A policy network decides, per batch, which residual blocks run."""

    def __init__(self, width: int = 16, blocks: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.policy = nn.Linear(width, blocks)
        self.blocks = nn.ModuleList(BasicBlock(width, width, 1) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.stem(x))
        keep = (self.policy(x.mean((2, 3))) > 0).float()
        for i, block in enumerate(self.blocks):
            gate = keep[:, i]
            if gate.sum() > 0:
                gate = gate[:, None, None, None]
                x = gate * block(x) + (1 - gate) * x
        return self.head(x.mean((2, 3))), keep


CASES = (
    Case("Seq2Seq", "dynamic", Seq2Seq, lambda batch: (torch.randint(2, 200, (batch, 10)),)),
    Case("LSTM", "dynamic", LSTM, lambda batch: (torch.randn(batch, 20, 64),)),
    Case("BlockDrop", "dynamic", BlockDrop, lambda batch: (torch.randn(batch, 3, 64, 64),)),
)
