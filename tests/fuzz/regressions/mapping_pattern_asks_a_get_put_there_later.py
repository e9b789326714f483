# eager: a pattern of a class or of keys
import torch
class PD(dict): pass
pd = PD(a=1, b=2)
def f(p, k):
    match pd:
        case {'a': q, 'b': 2, **rest}: return q, rest, p + 1
        case {'b': q}: return 'b', q, p + 2
    return p
target = f
def steps(f):
    for j in range(9):
        if j == 3: PD.get = lambda self, key, default=None: dict.get(self, key, default) if key == 'b' else default
        if j == 6: del PD.get
        if j == 7: pd['b'] = 3
        r = attempt(f, torch.ones(2), 1)
        yield r
