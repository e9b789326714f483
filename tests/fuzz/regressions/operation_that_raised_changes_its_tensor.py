import torch

total = torch.tensor(2.0)


class Wrapper:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[q.t for q in args])


wrapper = Wrapper(torch.ones(3))


def f(p):
    total.sub_(torch.sin(wrapper))
    return p


target = f


def steps(f):
    yield attempt(f, torch.ones(2))
    wrapper.t = torch.tensor(2.0)
    yield attempt(f, torch.ones(2)), total
    wrapper.t = torch.ones(3)
    yield attempt(f, torch.ones(2)), total
    wrapper.t = torch.tensor(2.0)
    yield attempt(f, torch.ones(2)), total
    yield attempt(f, torch.ones(2)), total
