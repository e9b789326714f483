# eager: hooks of saved tensors are set
import torch
weight = torch.nn.Parameter(torch.ones(2))
scale = 1.0
def f(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * scale, lambda t: t):
        return (x * weight).exp().sum()
target = f
def steps(f):
    global scale
    for i in range(6):
        f(torch.ones(2)).backward()
        yield weight.grad
        scale += 1
