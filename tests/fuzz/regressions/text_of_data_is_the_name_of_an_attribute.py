import sys
import torch
class Sub:
    pass
sub = Sub()
names = [sys.intern(f"{i:.1f}") for i in range(9)]
def f(p):
    setattr(sub, f'{p.sum().item():.1f}', 1)
    return p
target = f
def steps(f):
    for i in (0, 0, 0, 0, 1, 1, 1, 2, 3, 0, 5, 5, 5):
        yield attempt(f, torch.full((2,), i / 2))
