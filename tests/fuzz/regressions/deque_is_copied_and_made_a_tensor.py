import collections
import copy
import torch
q = collections.deque([1], maxlen=3)

class Sub(list):
    pass
items = Sub([1])

def f(t, n):
    q.append(n)
    return copy.deepcopy(q), torch.as_tensor(q), torch.as_tensor(items)
target = f

def steps(f):
    for n in (1, 1, 1, 1, 2):
        yield attempt(f, torch.ones(2), n)
    items.append(4)
    yield attempt(f, torch.ones(2), 2)
    yield attempt(f, torch.ones(2), 2)
