import torch
w=torch.zeros(2)
class P:
    def __repr__(self):
        w.add_(1)
        return 'p'
p = P()
def f(t):
    w.mul_(2)
    print(p)
    w.mul_(3)
    return t+w
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
