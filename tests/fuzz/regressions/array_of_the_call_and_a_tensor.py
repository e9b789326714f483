# eager: is given a tensor, takes its data
import torch
linear = torch.nn.Linear(3, 3)

def f(p):
    n = linear(torch.ones(3)).detach().numpy()
    return p * n, n > float(p[0])
target = f

def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(3))
        linear.bias.data.add_(1)
