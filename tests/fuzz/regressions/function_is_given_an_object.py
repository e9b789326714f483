# eager: is given to a function that magpy records as one operation
import torch, functools
from torch.utils.checkpoint import checkpoint
class Config:
    def __init__(self, scale):
        self.scale = scale
class S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        ctx.config = config
        return x * 2
    @staticmethod
    def backward(ctx, g):
        if type(ctx.config) is list:
            ctx.config.append(1)
            return g * len(ctx.config), None
        return g * ctx.config.scale, None
def given(x, config):
    return S.apply(x, config)
def made(x, n):
    return S.apply(x, Config(n))
def closure(x, mask):
    def block(t):
        return t * mask
    return checkpoint(block, x, use_reentrant=True)
def target(which, *args):
    return which(*args).sum()
def steps(c):
    for i in range(5):
        kept = []
        for which, arg in (
            (given, Config(i)), (given, kept), (made, 2), (closure, torch.full((2,), i + 1.0))
        ):
            x = torch.ones(2, requires_grad=True)
            y = c(which, x, arg)
            y.backward()
            yield y, x.grad, kept
