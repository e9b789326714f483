import collections
table = collections.defaultdict(list)

def f(k):
    table[k].append(len(table))
target = f

def steps(f):
    yield attempt(f, 'z')
    yield attempt(f, 'z')
    yield attempt(f, 'y')
    yield attempt(f, 'y')
    yield attempt(f, 'y')
    del table['y']
    yield attempt(f, 'y')
