import torch
class Config:
    scale = 1.0
config = Config()
log = []
factor = 2.0
def helper(g):
    return g * config.scale
class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * factor
class Counts(torch.autograd.Function):
    weight = 1.0
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        log.append(1)
        return helper(g.neg() * Counts.weight)
def f(x):
    return Plain.apply(x).sum() + Counts.apply(x * 2).sum()
target = f
def steps(f):
    global factor
    for i in range(8):
        x = torch.ones(2, requires_grad=True)
        y = f(x)
        if i > 1:
            factor += 1
        y.backward()
        yield x.grad
        if i % 2:
            Counts.weight += 1
        else:
            config.scale *= 2
