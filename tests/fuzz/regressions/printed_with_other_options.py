# eager: a tensor becomes a text after the call has set print options
import torch
class P:
    def __repr__(self):
        print(torch.tensor(1.23456))
        return 'p'
p = P()
def f(t):
    torch.set_printoptions(precision=2)
    print(p, t*1.2345)
    torch.set_printoptions(precision=4)
    print(t*1.2345)
    return t+1
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
