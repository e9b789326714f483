import torch

heard = 0


class Logged(torch.Tensor):
    seen = []
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        global heard
        heard += 1
        cls.calls += 1
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


logged = torch.ones(2).as_subclass(Logged)


def f(how):
    r = torch.relu(logged)
    if how == 0:
        return r, len(Logged.seen) // 100
    if how == 1:
        return r, Logged.calls // 100
    return r, heard // 100


target = f


def steps(f):
    global heard
    for how in range(3):
        for i in range(4):
            yield attempt(f, how)
        Logged.seen += range(99)
        Logged.calls += 99
        heard += 99
        yield attempt(f, how)
