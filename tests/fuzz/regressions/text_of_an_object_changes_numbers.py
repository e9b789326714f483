# eager: the call changes an array from outside
import array
import torch
a = array.array("i", [1])

class P:
    def __repr__(self):
        a.append(3)
        return "p"
p = P()

def f(t):
    print(p)
    return t + len(a)
target = f

def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2))
