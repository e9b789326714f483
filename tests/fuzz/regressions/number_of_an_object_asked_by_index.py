import math
import torch
class Money:
    __slots__ = 'n'
    def __init__(self, n):
        self.n = n
    def __add__(self, other):
        return Money(self.n + other)
    def __index__(self):
        return self.n
money = Money(2)
gt = torch.zeros(1)
def f():
    global money
    money += 1
    gt.add_(math.sqrt(money))
    return gt.clone()
target = f
def steps(f):
    global money
    for _ in range(6):
        yield attempt(f)
    money = Money(2)
    for _ in range(6):
        yield attempt(f)
