import torch
class Tagged(torch.Tensor):
    pass
kept = torch.tensor(1)
def f(a):
    kept.mine = a.as_subclass(Tagged)
    return (a * 2).as_subclass(Tagged)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.tensor(i)), kept.mine
