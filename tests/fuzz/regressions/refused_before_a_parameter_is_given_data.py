# eager: linearize is called
import torch
gp = torch.tensor(2.0, requires_grad=True)

def f(p0):
    torch.func.linearize(lambda q: q * q, p0)
    gp.data = gp.reshape(-1)
    return {'a': p0, 'b': gp}
target = f

def steps(f):
    r = attempt(f, gp)
    backward(r)
    yield r
