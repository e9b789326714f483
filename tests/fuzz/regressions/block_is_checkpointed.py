import torch
from torch.utils.checkpoint import checkpoint
factor = 1.0
model = torch.nn.Sequential(
    torch.nn.Linear(2, 2), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5, inplace=True),
    torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2),
)
torch.nn.init.eye_(model[0].weight)
torch.nn.init.ones_(model[4].weight)
def block(x):
    return (model(x) * factor).exp()
def f(x):
    return checkpoint(block, x * 2, use_reentrant=False).sum()
target = f
def steps(f):
    global factor
    for i in range(6):
        x = torch.arange(6.0).reshape(3, 2).requires_grad_()
        y = f(x)
        if i > 2:
            factor *= 0.5
        yield y
        yield attempt(y.backward), x.grad, model[0].weight.grad, list(model.buffers())
    with torch.no_grad():
        for i in range(3):
            yield f(torch.ones(3, 2))
