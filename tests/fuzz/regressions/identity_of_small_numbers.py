import random
class Box:
    def __init__(self, *items):
        self.items = items
    def __contains__(self, v):
        return any((v is q for q in self.items))
box, two = Box(1, 300), 2
def f(count):
    n = random.randint(0, 2)
    m = n * 0
    return n in box, n is not two, n is n, m is box.items[0] - 1, m is n, n + 299 in box, count is two
target = f
def steps(f):
    for i in range(24):
        random.seed(i // 3)
        yield attempt(f, i // 8)
