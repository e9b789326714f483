# anew: the text of the object changes what is read
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
