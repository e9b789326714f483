import torch
raw8 = bytearray(12)
over = torch.frombuffer(raw8, dtype=torch.float32)

def f(p0):
    raw8[3] = 64
    return p0 + 1
target = f

def steps(f):
    for p in (torch.zeros(3), torch.zeros(3), over, torch.zeros(3), over):
        over.zero_()
        yield attempt(f, p), bytes(raw8)
