import torch
from torch import nn

table = {}
key = torch.ones(2)


def f(d, t, k):
    d[nn] = t
    d[k] = t + 1
    return d[nn], d[k], len(d)


target = f


def steps(f):
    for d in (table, {}, table, {nn: 3}, {nn: torch.ones(1), key: 2}, {nn: torch.ones(1), key: 3}):
        yield attempt(f, d, torch.ones(2), key), d
        yield attempt(f, d, torch.ones(2), 4), d
        yield attempt(f, d, torch.ones(2), torch.ones(1)), len(d)
