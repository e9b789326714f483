import torch


class Wrapper:
    calls = 0

    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        return func(*[q.t if isinstance(q, Wrapper) else q for q in args], **{k: q.t for k, q in (kwargs or {}).items()})


wrapper = Wrapper(torch.ones(3))


def f(p):
    t = torch.add(wrapper, p)
    return t, t.shape[0], torch.mul(wrapper, other=wrapper) if p > 3 else Wrapper.calls


target = f


def steps(f):
    for n in (3, 3, 2, 1, 1, 4):
        yield attempt(f, n)
        wrapper.t = torch.ones(n)
        yield attempt(f, n)
    Wrapper.__torch_function__ = classmethod(lambda cls, func, types, args, kwargs=None: 7)
    yield attempt(f, 4)
