class Thing:
    n = 1

    def grow(self):
        self.n += 1
thing = Thing()

def f():
    thing.grow()
target = f

def steps(f):
    yield attempt(f)
    yield attempt(f)
    thing.__dict__ = dict()
    yield attempt(f)
    yield attempt(f)
    yield attempt(f)
