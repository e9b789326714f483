# eager: add raises a RuntimeError
import torch


def f(p, how):
    try:
        torch.add(p, torch.ones(7))
    except RuntimeError as error:
        if how == 1:
            error.tag = how
        if how == 2:
            try:
                torch.mm(p, p)
            except RuntimeError as inner:
                return inner
        return error


target = f


def steps(f):
    for how in range(3):
        for i in range(3):
            r = attempt(f, torch.ones(2), how)
            yield r, vars(r)
