# eager: the frame of a caller is looked at
import sys
import torch
def f(x):
    return x + len(sys._getframe(1).f_code.co_name)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
