import torch
torch.manual_seed(0)
cell = torch.nn.GRUCell(2, 2)
def f(x, h):
    return cell(x, h.detach())
target = f
def steps(f):
    for start in (torch.zeros(2, 2), torch.zeros(2, 2, requires_grad=True)):
        h = start
        for n in (2, 2, 2, 3, 3, 2, 4, 4):
            if len(h) != n:
                h = torch.zeros(n, 2, requires_grad=True)
            h = f(torch.ones(n, 2), h)
            yield h, attempt(h.sum().backward), cell.weight_hh.grad
