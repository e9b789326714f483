class Thing:
    n = 1
    def scale(self):
        self.n += 1
class Sub(Thing):
    def __init__(self):
        self.calls = []
    def scale(self):
        self.calls.append(1)
        super().scale()
sub, other = Sub(), Sub()
def f(p):
    sub.scale()
    p.scale()
    sub.__class__ = p.__class__ = Thing
    del sub.n
target = f
def steps(f):
    yield attempt(f, other)
    yield attempt(f, other)
    sub.__class__ = other.__class__ = Sub
    yield attempt(f, other)
    yield attempt(f, other)
