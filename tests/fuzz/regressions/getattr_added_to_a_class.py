class Thing:
    pass
thing = Thing()

def f():
    return getattr(thing, 'ab', None), hasattr(thing, 'cd')
target = f

def steps(f):
    yield attempt(f)
    yield attempt(f)
    Thing.__getattr__ = lambda self, name: 5.0
    yield attempt(f)
