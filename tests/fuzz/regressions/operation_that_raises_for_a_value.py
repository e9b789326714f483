import math
import torch
def f(p, how):
    n = p.sum().item()
    if how == 0:
        return 1 / n
    if how == 1:
        return math.sqrt(n)
    if how == 2:
        return 1 << int(n)
    if how == 3:
        return f"{n:d}"
    return int(str(n))
target = f
def steps(f):
    for how in range(5):
        for value in (0.0, -1.0, 4.0, 0.0, -1.0, 4.0):
            yield attempt(f, torch.tensor([value]), how)
