import numpy as np
import torch
class Own(np.ndarray):
    pass
own = np.ones(3).view(Own)
matrix = np.matrix([1.0, 2.0])
masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
turned = np.arange(6.0).reshape(2, 3).T
record = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0]
def f(t):
    return t * float(own.sum()) + float(matrix[0, 1]), masked.tolist(), turned[0].tolist(), float(record['a']) + 1
target = f
def steps(f):
    for change in (own, matrix, masked, turned, record, None):
        for i in range(3):
            yield attempt(f, torch.ones(2))
        if change is not None:
            change[0] = 5.0
