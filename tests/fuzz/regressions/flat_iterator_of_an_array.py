import numpy as np
def f(a):
    return [q + 1 for q in a.flat], a.flat[0]
target = f
def steps(f):
    for j in (3, 2, 3):
        yield attempt(f, np.full(j, float(j)))
