import torch
class P:
    def __repr__(self):
        print(torch.is_grad_enabled(), torch.get_default_dtype())
        return 'p'
p = P()
def f(t):
    with torch.no_grad():
        print(p)
        return t+1
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
