import array
import types

import numpy as np

config = types.SimpleNamespace(sizes=[1, 2])
row = []
raw = bytearray(b"")


def f(how):
    own = [7, 8]
    if how == 0:
        row[:] = config.sizes
    elif how == 1:
        own[1:] = config.sizes
    elif how == 2:
        raw[:] = config.sizes
    elif how == 3:
        own = np.zeros(2)
        own[:] = config.sizes
    elif how == 4:
        own = np.zeros((2, 2))
        own[0] = config.sizes
    elif how == 5:
        own += config.sizes
    elif how == 6:
        own[::2] = map(str, config.sizes[:1])
    return own


target = f


def steps(f):
    for how in range(7):
        for last in (2, 3):
            config.sizes[-1] = last
            yield attempt(f, how)
            yield attempt(f, how)
