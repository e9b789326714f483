import torch

rows = torch.ones(3, 2)
kept = torch.ones(3, 2)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("row", kept[0])


module = Module()


def f(row):
    if row.requires_grad or module.row.requires_grad:
        return row * 3, row.is_leaf, module.row.is_leaf
    return row * 2 * module.row


target = f


def steps(f):
    row = rows[0]
    yield attempt(f, row)
    yield attempt(f, row)
    rows.requires_grad_()
    yield attempt(f, row)
    kept.requires_grad_()
    yield attempt(f, rows.detach()[0])
    yield attempt(f, row)
    rows.requires_grad_(False)
    rows.mul_(torch.ones(2, requires_grad=True))
    yield attempt(f, row)
    kept.requires_grad_(False)
    yield attempt(f, torch.ones(2))
    kept.mul_(torch.ones(2, requires_grad=True))
    yield attempt(f, torch.ones(2))
