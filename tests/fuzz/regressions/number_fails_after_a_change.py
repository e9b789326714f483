import torch
seen = []
def f(p, how):
    seen.append(how)
    p.add_(1)
    n = p.sum().item()
    if how == 0: return 1 / n
    if how == 1: return int(n)
    if how == 2: return 2.0 ** n
    if how == 3: return int(n) + 1.5
    if how == 4: return 10 ** int(n) * 0.5
    if how == 5: return p.new_ones(3) * (1 // n)
    return n
def steps(f):
    for how in range(6):
        for x in (2., 3., -1., float("inf"), 1023.0, 5000., 2):
            p = torch.tensor([x])
            yield attempt(f, p, how), p
target=f
