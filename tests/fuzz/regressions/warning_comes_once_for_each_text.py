# eager: warn is called: tests.fuzz.worlds._shown_in.<locals>.warned runs in it, Python of the
import warnings
gi, last = 3, None
def f():
    global gi, last
    last = warnings
    warnings.warn(f'{gi} %d', Notice)
    gi = gi * 2 % 7
target = f
def steps(f):
    for i in range(9):
        yield attempt(f)
