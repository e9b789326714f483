# eager: Tensor.set_ is called
import torch
gt = torch.tensor([])
def f():
    gt.set_(torch.tensor(2.0))
target = f
def steps(f):
    r = attempt(f); yield
    gt.add_(1)
    r = attempt(f)
    yield r
