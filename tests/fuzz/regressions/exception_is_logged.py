import torch
class O:
    n=0
    
o=O()
o.n=0
def f(t):
    e=ValueError('a',t*2,[1])
    print(e, repr(e))
    e.args=(5,)
    print(e, e.args)
    return e.args
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
