# eager: the call raised RuntimeError: grad_and_value(f)(*args): Expected f(*args) to return a
import torch
gp = torch.tensor(2.0, requires_grad=True)

def f(p0):
    torch.func.grad(lambda q: q * q)(p0)
    gp.data = gp.reshape(-1)
    return {'a': p0, 'b': gp}
target = f

def steps(f):
    for _ in range(4):
        r = attempt(f, gp)
        backward(r)
        yield r
