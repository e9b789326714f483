# eager: uses up the interpreter's stack
kept = []
def f(p):
    class Made(list):
        def m(self, q):
            use(kept)
    kept.append(lambda: Made().m(p))
    return Made().m(p)
target = f
def steps(f):
    yield attempt(f, 1)
