import sys
import torch
log = []
class W:
    def write(self, text): log.append(text)
    def flush(self): pass
wr = W()
def f(p, k):
    log.append(k)
    print(k)
    return p + 1
target = f
def steps(f):
    for j in range(6):
        old = sys.stdout
        if j > 2: sys.stdout = wr
        r = attempt(f, torch.ones(2), 1)
        sys.stdout = old
        yield r, log
