import numpy as np
import torch

whole = np.arange(6.0)
middle = torch.from_numpy(whole)


def f():
    f1 = 2
    print(torch.from_numpy(middle.numpy()))
    middle.add_(f1)


target = f


def steps(f):
    for _ in range(3):
        yield attempt(f)
