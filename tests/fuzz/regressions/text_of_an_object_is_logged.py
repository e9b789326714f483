import torch
log = []
class P:
    def __repr__(self):
        log.append("r")
        return "p"
p = P()
def f(t):
    print(p)
    log.append("x")
    print(p)
    return t + 1
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
