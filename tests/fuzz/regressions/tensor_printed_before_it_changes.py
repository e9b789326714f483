# anew: the list that is printed is longer in each call
import torch
base = torch.arange(3.0)
items = [0]

def f(t):
    print(t, items)
    base.add_(1)
    items.append(1)
    print(items)
target = f

def steps(f):
    yield attempt(f, base)
    yield attempt(f, base)
    yield attempt(f, base)
