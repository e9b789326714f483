import torch, warnings
def f(x):
    a = torch.empty(0)
    torch.add(x, 1, out=a)
    b = torch.zeros(1, 8)
    b.resize_(x.shape[0]).fill_(2)
    return a.shape[0] * x.sum(), a.numel(), b.shape[0] * x, len(b)
def g(x, n):
    t = torch.zeros(12)
    t[n:n + x.shape[0]] = x
    t[:n] += 1
    return t, t[:n].sum()
def target(which, *args):
    return which(*args)
def steps(c):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (2, 3, 4, 5, 6, 3):
            yield c(f, torch.ones(n))
    for i, n in ((2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (2, 10), (2, 11), (2, -3)):
        yield attempt(c, g, torch.ones(i), n)
