# eager: StringIO.getvalue is called of what the call has written to
import torch, io
b = io.StringIO()
def f(t):
    print("a", file=b)
    return t + len(b.getvalue())
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
