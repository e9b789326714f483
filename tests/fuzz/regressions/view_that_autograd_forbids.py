# eager: a tensor that requires grad is changed in place before a value is read
import torch

a0 = torch.tensor([], requires_grad=True)


def f(p0):
    p0.sub_(p0)
    return p0.numpy()


target = f


def steps(f):
    with torch.no_grad():
        for i in range(3):
            yield attempt(f, a0.T)
