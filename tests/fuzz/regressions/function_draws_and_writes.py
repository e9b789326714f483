import torch, random
total = torch.zeros(2)
class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.k = random.random()
        return x * ctx.k * torch.rand(2)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.k
class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total.data.mul_(0.9).add_(x.detach())
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g
def draws(x):
    return Draws.apply(x).sum()
def writes(x):
    Writes.apply(x)
    if total.sum() > 4:
        return total * 2
    return x
def target(which, x):
    return which(x)
def steps(c):
    for i in range(8):
        x = torch.full((2,), float(i % 4), requires_grad=True)
        y = c(draws, x)
        yield y, random.random()
        y.backward()
        yield x.grad
        yield c(writes, x), total
