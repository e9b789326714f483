class Thing:
    size = 0
thing = Thing()
thing.size = 3

def f(p):
    thing.size = p
    thing.size = len(str(p))
target = f

def steps(f):
    yield attempt(f, 2.0)
    thing.size = 0
    yield attempt(f, 2.0)
    yield attempt(f, 2.0)
