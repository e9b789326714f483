# eager: asks a tensor for numbers whose class has a __torch_function__
import torch


class Thing:
    def __init__(self, v, name="thing"):
        self.v = v

    @property
    def twice(self):
        return self.v * 2


class Logged(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=1, kwargs=None):
        cls.seen.append(func)
        return args


logged = torch.tensor(1).as_subclass(Logged)
thing = Thing(2.0)


def f():
    if torch.tensor(thing.twice):
        pass
    thing.v = logged


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f)
