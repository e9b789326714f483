import torch

total = torch.tensor(1.5)
state = {"n": 0}


class Strict(torch.Tensor):
    forbidden = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in cls.forbidden:
            raise ValueError(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


strict = torch.tensor(1.0).as_subclass(Strict)


def f(p):
    state["n"] += 1
    total.add_(1)
    return torch.mul(strict, p)


target = f


def steps(f):
    for i in range(3):
        yield attempt(f, 2.0)
    Strict.forbidden.append("mul")
    for i in range(3):
        yield attempt(f, 2.0)
