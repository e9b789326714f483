# eager: a bytearray from outside is changed whose memory a tensor has
import torch
raw8 = bytearray(12)
over = torch.frombuffer(raw8, dtype=torch.float32)

def f(p0):
    raw8[3] = 64
    return {k: q + 1 for k, q in {'b': p0}.items()}
target = f

def steps(f):
    r = attempt(f, over)
    over.zero_()
    r = attempt(f, over)
    yield r
