import torch
class P:
    def __repr__(self):
        print(torch.tensor(1.5).dtype)
        return 'p'
p = P()
def f(t):
    torch.set_default_dtype(torch.float64)
    print(p)
    torch.set_default_dtype(torch.float32)
    return t+1
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
