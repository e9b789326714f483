import random
items = [1, 1, 1]
table = {'a': 1}

def f():
    items[0] = random.randint(0, 3)
    table['a'] = random.randint(0, 3)
target = f

def steps(f):
    for i in range(6):
        yield attempt(f)
        items[0] = table['a'] = i % 4
