# eager: a numpy array is kept that shares memory with one from outside
import numpy as np
gn = np.array([2.0, 3.0])

def f():
    return gn[1:]
target = f

def steps(f):
    yield attempt(f)
    yield attempt(f)
    gn[1] = 5.0
    yield attempt(f)
