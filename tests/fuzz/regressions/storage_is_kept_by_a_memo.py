# eager: a tensor is copied by copy.deepcopy
import copy
import torch


def f(p):
    memo = {}
    copy.deepcopy([p], memo)
    return [type(x).__name__ for x in memo.values()], [*memo.values()]


target = f


def steps(f):
    for _ in range(3):
        yield len(attempt(f, torch.arange(3.0))[1])
