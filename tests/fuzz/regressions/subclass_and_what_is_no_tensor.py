import torch

total = torch.tensor(1.5)


class Tagged(torch.Tensor):
    pass


class Wrapper:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [q.t if isinstance(q, Wrapper) else q for q in args]
        return func(*args)


tagged = torch.tensor(1.0).as_subclass(Tagged)
wrapper = Wrapper(1)


def f(p):
    total.add_(1)
    return torch.add(wrapper, tagged), p + 1


target = f


def steps(f):
    for t in (1, 2, p := torch.ones(2), abs):
        wrapper.t = t
        for i in range(3):
            yield attempt(f, p)
            yield attempt(f, p.sum)
