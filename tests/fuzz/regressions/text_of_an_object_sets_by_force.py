import torch
class O: pass
o=O(); o.n=0
class P:
    def __repr__(self):
        object.__setattr__(o,'n',o.__dict__.get('n')+1)
        return 'p'
p = P()
def f(t):
    print(p)
    return t+o.n
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
