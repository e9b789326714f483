# eager: __setitem__ raises an IndexError
import torch
gdt = {'a': torch.tensor([2.0, 0.5])}
def f(p0, p1):
    gdt['a'][p0 > 0] = p1
    return gdt['a'].sum()
target = f
def steps(f):
    for j in range(12):
        yield attempt(f, torch.ones(j // 2), 0.5)
