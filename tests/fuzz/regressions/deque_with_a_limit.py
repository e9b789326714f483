import collections
gq = collections.deque(maxlen=3)

def f(v):
    gq.append(v)
target = f

def steps(f):
    for i in range(5):
        yield attempt(f, 1)
