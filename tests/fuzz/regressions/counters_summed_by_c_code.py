class Thing:

    def __init__(self, v):
        self.v = v
things = [Thing(2.0), Thing(2.0)]

def f():
    things[0].v = sum((q.v for q in things))
target = f

def steps(f):
    for i in range(6):
        yield attempt(f)
    things[1].v = 0.0
    for i in range(3):
        yield attempt(f)
