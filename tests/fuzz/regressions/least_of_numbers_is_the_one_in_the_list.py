# anew: box is another object after each call
import torch


class Tagged(torch.Tensor):
    tag = 3


tagged = Tagged


class Box:
    def __init__(self, *items):
        self.items = list(items)

    def __setitem__(self, i, v):
        self.items[i] = v

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, v):
        return any((v is q for q in self))

    def __add__(self, other):
        return Box(*self, other)


box = Box(2)


def f():
    global box
    box[0] = 1 / 2
    box = box + tagged.tag
    tagged.tag = len
    assert min([q for q in box]) in box


target = f


def steps(f):
    yield attempt(f)  # noqa: F821
