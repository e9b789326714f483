import torch
import numpy as np
A=np.array([1.23456])
class P:
    def __repr__(self):
        print(A)
        return 'p'
p = P()
def f(t):
    with np.printoptions(precision=2):
        print(p, A)
    print(A)
    return t+1
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2))
