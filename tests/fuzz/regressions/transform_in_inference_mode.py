# eager: torch.func transforms in inference mode
import torch

def f(p):
    t = torch.func.vjp(lambda q: q, torch.ones(2) * p)[0]
    t.requires_grad_()
    return torch.vmap(torch.sin)(t)
target = f

def steps(f):
    for p in (0.5, 0.5, 1.5):
        with torch.inference_mode():
            r = attempt(f, p)
        yield r
