import torch
class P:
    def __repr__(self):
        print(torch.is_inference_mode_enabled(), torch.is_autocast_enabled('cpu'))
        return 'p'
p = P()
def f(t):
    with torch.inference_mode():
        print(p)
    with torch.autocast('cpu'):
        print(p)
    return t+1
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
