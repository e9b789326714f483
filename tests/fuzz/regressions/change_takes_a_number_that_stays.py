import torch


def helper(t, k=1, *rest, flag=False, **named):
    pass


gf = 0.0


def f(p0, p3):
    p0.copy_(p3)
    helper(gf, flag=p0.data_ptr() == 0)


target = f


def steps(f):
    for i in range(3):
        a = torch.tensor(2.0)
        yield attempt(f, a, a.clone() + i), a
