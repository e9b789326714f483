import torch
from torch.utils.checkpoint import checkpoint
class Config:
    scale = 1.0
config = Config()
sizes = [1.0, 2.0]
class S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config, sizes):
        ctx.config, ctx.sizes = config, sizes
        return x * sizes[0]
    @staticmethod
    def backward(ctx, g):
        return g * ctx.config.scale * ctx.sizes[1], None, None
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)
    def forward(self, x, scale):
        return checkpoint(lambda t: self.norm(t) * scale, x, use_reentrant=True)
block = Block()
def f(x):
    return block(S.apply(x, config, sizes), 2.0).sum()
target = f
def steps(f):
    for i in range(6):
        x = torch.arange(6.0).reshape(3, 2).requires_grad_()
        y = f(x)
        sizes[1] += 1
        config.scale += 1
        y.backward()
        sizes[1] -= 1
        yield y, x.grad, list(block.buffers())
