# eager: memory that is read as a bytearray from outside is changed through a tensor
import torch
raw = bytearray(8)
view = torch.frombuffer(raw, dtype=torch.uint8)
def f():
    view.add_(1)
    return bytes(raw), sum(raw)
target = f
def steps(f):
    for i in range(4):
        yield attempt(f)
