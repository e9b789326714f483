# eager: an itertools.chain is kept that is at its end
import itertools
def f(k):
    global it, other
    it, other = itertools.chain([1], []), itertools.chain()
    return list(it)
target = f
def steps(f):
    for j in range(4):
        yield attempt(f, 1)
        yield next(it, 'end'), next(other, 'end')
