# eager: print runs Python that changes an object that the call looks at
import torch
log = []
class P:
    def __repr__(self):
        log.append("r")
        return "p"
p = P()
def f(t):
    print(p)
    return t + len(log)
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
