# eager: the call has changed an object from outside before it calls a function that magpy records
import torch
class S(torch.autograd.Function):
    calls = 0
    @staticmethod
    def forward(ctx, x):
        S.calls += 1
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
def f(x):
    S.calls += 10
    return S.apply(x).sum()
target = f
def steps(f):
    for i in range(4):
        x = torch.ones(2, requires_grad=True)
        y = f(x)
        yield y, S.calls
        y.backward()
        yield x.grad, S.calls
