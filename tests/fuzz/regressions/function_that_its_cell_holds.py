"""A function is kept in the cell that it names itself."""

from torch import distributions

spread = distributions.Normal(3, 3)


def f():
    def fn1(q):
        return p0

    p0 = fn1
    spread.scale.mul_(2)
    return p0


target = f


def steps(f):
    for _ in range(3):
        yield attempt(f)  # noqa: F821
