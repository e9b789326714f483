import torch


def make_counter():
    count = 0
    history = []

    def counter(step=1):
        nonlocal count
        count += step
        history.append(count)
        return count

    counter.history = history
    return counter


counter = make_counter()
a0 = torch.tensor(1)


def f(p0):
    p0 += counter()
    n = p0.reshape(-1).shape[0]
    m = n
    n += counter()
    return counter(), m, n


target = f


def steps(f):
    for n in (1, 1, 1, 2, 3, 4):
        yield attempt(f, a0), list(counter.history)
        yield attempt(f, torch.ones(n, dtype=torch.int64))
