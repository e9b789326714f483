# eager: a backward pass goes on to what was computed before the call
import torch
a1 = torch.tensor([1.0, 2.0])
gt = torch.tensor([3.0, 4.0], requires_grad=True)
def f(p0):
    global gt
    gt = gt + 1
    gt.sum().backward()
    gt = p0 * 1
target = f
def steps(f):
    yield attempt(f, a1.requires_grad_())
    for _ in range(3):
        yield attempt(f, gt)
