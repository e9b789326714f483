import numpy as np

array = np.arange(6.0)[::2]


def f(a):
    return a[:2]


target = f


def steps(f):
    for _ in range(3):
        array[0] = 3
        r = attempt(f, array)
        r[0] = 5
        yield r
