import torch
import random
random.seed(1)
class P:
    def __repr__(self):
        random.random()
        return 'p'
p = P()
def f(t):
    print(p)
    return t+random.random()
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
