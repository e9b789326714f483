# eager: a class is made
import torch


class Grown:
    def __init_subclass__(cls, **kw):
        pass


def grown(n):
    class Local(Grown, q=n):
        items = []

    return Local


def f(x):
    local = grown(3)
    names = vars(local)
    return x * 2, local.items, names["items"]


target = f


def steps(f):
    first = attempt(f, torch.ones(2))
    second = attempt(f, torch.ones(2))
    yield first, second, attempt(f, torch.ones(2))
