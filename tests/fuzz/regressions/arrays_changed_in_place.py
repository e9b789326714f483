# eager: an array that follows from data is written to
import numpy as np, torch
an = np.ones(3)
def f(k, p):
    if k == 0: p += 1
    if k == 1: p[0] = 7
    if k == 2: np.add(p, 1, out=p)
    if k == 3: p.fill(3)
    if k == 4: p.sort()
    if k == 5: torch.from_numpy(p).add_(1)
    if k == 6: p[1:] *= 2
    if k == 7: p[1:][0] = 9
    if k == 8: p.T[0] = 4
    if k == 9: an[:] = p
    if k == 10: p.flat[0] = 5
    if k == 11: p.shape = (3, 1)
    if k == 12:
        q = p.reshape(-1); q += 1
    if k == 13: np.copyto(p, an)
    if k == 14: torch.from_numpy(p)[0] = 3
    if k == 15: p.view()[0] = 2
    if k == 16: np.random.shuffle(p)
    if k == 17: memoryview(p)[0] = 8.0
    if k == 18: np.nditer(p)
    return p
target = f
def steps(f):
    for k in (0, 1, 6, 7, 10, 12):
        for i in range(3):
            x = np.arange(3.0)
            yield attempt(f, k, x), x
    yield an
