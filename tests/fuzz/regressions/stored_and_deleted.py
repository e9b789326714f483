import torch

row = 1
table = {"k": 1, "l": 2}


class Thing:
    x = 0


thing = Thing()
thing.x = 1


def f(how):
    global row
    if how == 0:
        row = torch
        del row
    elif how == 1:
        table["k"] = 2
        del table["k"]
    elif how == 2:
        thing.x = 2
        del thing.x
    elif how == 3:
        Thing.y = 2
        del Thing.y
    elif how == 4:
        table["m"] = 2
        table.pop("m")
    elif how == 5:
        table.update(l=3)
        table.popitem()


target = f


def steps(f):
    global row
    for how in range(6):
        yield attempt(f, how)
        yield attempt(f, how)
        row = table["k"] = thing.x = Thing.y = table["m"] = table["l"] = 5
        yield attempt(f, how)
        yield attempt(f, how)
