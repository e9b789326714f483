import torch
gt = torch.tensor(1)
def f():
    global gt
    gt = gt * 2
    return gt
target = f
def steps(f):
    with torch.inference_mode():
        yield attempt(f)
    gt.data = torch.tensor(1)
    yield attempt(f)
    yield attempt(f)
    yield attempt(f)
