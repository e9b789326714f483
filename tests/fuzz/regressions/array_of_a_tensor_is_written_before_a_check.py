# eager: an array that follows from data is written to
import torch
shared = torch.zeros(3)
def f(x):
    view = shared.numpy()
    view += 1
    view[0] = 5
    view.sort()
    if x.sum() > 1:
        return shared.sum()
    return x + shared
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2,), float(i % 2)))
