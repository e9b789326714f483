names = {"a", "b"}
table = {"a": 1}


def f(how):
    if how == 0:
        names.add("a")
        names.add("c")
    elif how == 1:
        names.discard("d")
    elif how == 2:
        names.add("e")
        names.remove("e")
    elif how == 3:
        table.update(a=1)
    elif how == 4:
        table["b"] = 1
        table.pop("b", None)


target = f


def steps(f):
    for how in range(5):
        for i in range(5):
            yield attempt(f, how)
        names.clear()
        names.update("de")
        table.clear()
        table.update(b=2)
        yield attempt(f, how)
        yield attempt(f, how)
