import collections
import torch

full = collections.deque(maxlen=3)
plain = collections.deque(["x"])
row = ["a", "b"]


def f(how):
    if how == 0:
        full.appendleft(torch)
    elif how == 1:
        plain.append("x")
        plain.popleft()
    elif how == 2:
        row.append("c")
        row.remove("c")
    elif how == 3:
        row.append("a")
        del row[0]


target = f


def steps(f):
    for how in range(4):
        for i in range(5):
            yield attempt(f, how)
        full.clear()
        plain.extend("yx")
        row[:] = ["c", "a", "d"]
        yield attempt(f, how)
        yield attempt(f, how)
