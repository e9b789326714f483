import torch

kept = []


def f(t):
    with torch.autocast("cpu"):
        kept[:] = [torch.stack([t])]
    with torch.inference_mode():
        with torch.autocast("cpu"):
            a = t @ t
        b = torch.rand(3)
    with torch.autocast("cpu"), torch.inference_mode():
        c = t @ t
    return a, b, c, t @ t


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f, torch.ones(2, 2))
