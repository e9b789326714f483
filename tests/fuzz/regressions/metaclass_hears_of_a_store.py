log = []

class Meta(type):

    def __setattr__(cls, name, value):
        log.append(name)
        super().__setattr__(name, value)

class C(metaclass=Meta):
    a = 1

def f(p):
    C.a = p
target = f

def steps(f):
    for p in (1, 1, 2, 2, 3, 1, 1):
        yield attempt(f, p), C.a, list(log)
