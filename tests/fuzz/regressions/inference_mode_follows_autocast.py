import torch

kept = []


def f(t):
    with torch.autocast("cpu"):
        kept[:] = [torch.stack([t])]
    with torch.inference_mode():
        b = torch.rand(3)
    return b


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f, torch.ones(2, 2))
        yield torch.is_autocast_enabled("cpu")
