# anew: the text is of what the call has changed
import torch
class C:
    def __repr__(self): return str(vars(D))[-0:] and str(vars(d))
class D: pass
d=D()
d.x=0
c=C()
def f(t):
    d.x+=1
    print(c)
    return t
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
