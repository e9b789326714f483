# eager: which runs TorchDynamo
import torch
def inner(x):
    return x * 2
compiled = torch.compile(inner, backend="eager")
def branches(x):
    return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
def calls(x):
    return compiled(x) + 1
def makes(x):
    return torch.compile(inner, backend="eager")(x)
def target(which, x):
    return which(x)
def steps(c):
    for which in (branches, calls, makes):
        for v in (1.0, -1.0):
            yield c(which, torch.full((2,), v))
