import torch
gt = torch.tensor([0.5])

def f():
    global gt
    gt.add_(1)
    t7 = gt
    gt.requires_grad_()
    gt = (t7 > t7.tolist()[0]).float()
target = f

def steps(f):
    for _ in range(6):
        yield attempt(f)
