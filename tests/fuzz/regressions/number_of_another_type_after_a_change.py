import torch, math
def f(p, how):
    p.add_(0)
    n = p.sum().item()
    if how == 0: k = 2 ** n
    if how == 1: k = (float(n) - 0.5)**0.5
    if how == 2: k = abs(n)
    if how == 3: k = round(n/2)
    if how == 4: k = divmod(n, 3)[1]
    if how == 5: k = math.pow(2, n)
    if how == 6: k = max(n, 2.5)
    if how == 7: k = min(n, 2.5)
    if how == 8: k = sum([n, 2.5])
    return isinstance(k,int), isinstance(k, float), k
def steps(f):
    for how in range(9):
        for x in (4, 3, 1, 5, 1, 0, -1, -2, -1):
            p = torch.tensor([x])
            yield attempt(f, p, how), p
target=f
