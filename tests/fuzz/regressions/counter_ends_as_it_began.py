import torch
gi = 2
def f(p0):
    global gi
    t1 = torch.from_numpy(p0.detach().numpy() * 2)
    gi = gi * 2 % 7
    gi = (t1 > 0).sum().item()
    gi = {**{"a": 1}, "{:>4}".format(gi): gi}.get("a", 1)
    gi = gi * 2 % 7
    gi = len([t1 for _ in range(2)])
target = f
def steps(f):
    global gi
    for i in range(3):
        yield attempt(f, torch.arange(3.0))
    gi += 1
    for i in range(3):
        yield attempt(f, torch.arange(3.0))
