# eager: print is called: fuzz_world.W runs in it, Python of the program that nobody watches there
import torch, sys
class W:
    n = 0
    text = []
    def write(self, s):
        W.n += 1
        W.text.append(s)
    def flush(self): pass
w = W()
def f(t):
    print("a", file=w)
    W.text.append("x")
    m = W.n
    print("b", file=w)
    return t + m
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
