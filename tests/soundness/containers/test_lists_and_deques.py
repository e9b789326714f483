"""Lists and deques from outside that every call changes: state, windows, histories."""

import collections
import copy
import functools
import itertools
import math

import numpy as np
import pytest
import torch

from tests.soundness.worlds import attempt, case, check_all, run

CASES = []


class Object:
    """Holds attributes."""


def rows(i):
    return torch.full((2,), float(i))


@case(CASES, captures=1)
def a_list_holds_the_state(compile):
    hidden = [torch.zeros(2), torch.ones(2)]

    def f(x):
        hidden[0] = hidden[0] + x
        hidden[1] = hidden[1] * hidden[0]
        return hidden[1].sum()

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), list(hidden)
    hidden[0] = torch.full((2,), 7.0)
    yield c(rows(1)), list(hidden)
    hidden.reverse()
    yield c(rows(2)), list(hidden)


@case(CASES, captures=5)
def a_list_of_state_becomes_another(compile):
    hidden = [torch.zeros(2)]

    def f(x):
        for i, h in enumerate(hidden):
            hidden[i] = h + x
        return sum(hidden)

    c = compile(f)
    for i in range(3):
        yield c(rows(i)), list(hidden)
    hidden.append(torch.ones(2))
    for i in range(3):
        yield c(rows(i)), list(hidden)
    hidden[0] = torch.zeros(3, 2)
    yield c(rows(1)), list(hidden)
    hidden[0] = hidden[1]  # one tensor at both places
    for i in range(3):
        yield c(rows(i)), list(hidden), hidden[0] is hidden[1]
    hidden[0] = 3.0
    yield c(rows(1)), list(hidden)


@case(CASES, captures=1)
def a_cache_of_pairs(compile):
    model = Object()
    model.cache = [(torch.zeros(1, 2), torch.ones(1, 2)) for _ in range(3)]

    def f(x):
        for i, (k, v) in enumerate(model.cache):
            k, v = torch.maximum(k, x), v + x
            model.cache[i] = (k, v)
            x = x + (k * v).sum()
        return x

    c = compile(f)
    for i in range(4):
        yield c(rows(i)), model.cache


@case(CASES, captures=1)
def a_cache_of_dicts(compile):
    cache = [{"k": torch.zeros(2)}, {"k": torch.ones(2)}]

    def f(x):
        for entry in cache:
            entry["k"] = entry["k"] + x
        return cache[0]["k"] * cache[1]["k"]

    c = compile(f)
    for i in range(4):
        yield c(rows(i)), cache


@case(CASES, captures=1)
def objects_change_places(compile):
    a, b = Object(), Object()
    a.n, b.n = torch.zeros(2), torch.ones(2)
    pair = [a, b]

    def f(x):
        pair[0], pair[1] = pair[1], pair[0]
        pair[0].n = pair[0].n + x
        return pair[1].n

    c = compile(f)
    for i in range(6):
        yield c(rows(i)), a.n, b.n, pair[0] is a


@case(CASES, captures=1)
def a_window_in_a_list(compile):
    window = [rows(0), rows(1), rows(2)]

    def f(x):
        window.append(x)
        window.pop(0)
        return torch.stack(window).sum(0)

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), list(window)


@case(CASES, captures=4)
def a_window_in_a_deque(compile):
    window = collections.deque(maxlen=3)

    def f(x):
        window.append(x * 2)
        return torch.stack(list(window)).sum(0)

    c = compile(f)
    for i in range(8):
        yield c(rows(i)), list(window)
    window.clear()
    yield c(rows(1)), list(window)


@case(CASES, captures=1)
def a_deque_that_turns(compile):
    ring = collections.deque([rows(0), rows(1), rows(2)])

    def f(x):
        ring.rotate(1)
        ring[0] = ring[0] + x
        return ring[0] * ring[-1]

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), list(ring)


@case(CASES, captures=2)
def only_appended_to_a_deque(compile):
    model = Object()
    model.losses = collections.deque(maxlen=3)
    model.all = collections.deque()

    def f(x):
        y = x * 2
        model.losses.append(y.sum().item())
        model.all.append(y.sum())
        return y

    c = compile(f)
    for i in range(6):
        yield c(rows(i)), list(model.losses), list(model.all)
    model.losses = collections.deque([1, 2, 3, 4], maxlen=4)
    yield c(rows(1)), list(model.losses)


@case(CASES)
def appended_to_a_deque_of_another_length(compile):
    model = Object()
    model.d = collections.deque([1.0, 1.0, 1.0], maxlen=3)

    def f(x):
        model.d.append(1.0)
        model.d.append(2.0)
        return x + 1

    def g(x):
        model.d.appendleft(x)
        model.d.extend([x + 1, x + 2])
        return x + 1

    for n in (3, 2, 5, None, 0):
        c, k = compile(f), compile(g)
        model.d = collections.deque([1.0, 1.0, 1.0], maxlen=n)
        for d in ([5.0, 6.0, 7.0], [1.0], [2.0, 2.0]):
            yield c(rows(1)), list(model.d)
            yield c(rows(1)), list(model.d)
            yield k(rows(1)), list(model.d)
            model.d.append(3.0)
            yield c(rows(1)), list(model.d)
            model.d.clear()
            model.d.extend(d)
            yield k(rows(1)), list(model.d)


@case(CASES, captures=1)
def the_last_one_is_the_one_that_was_appended(compile):
    history = []

    def f(x):
        history.append(x * 2)
        y = history[-1] + 1
        history.append(y)
        return history[-1] * history[-2]

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), list(history)


@case(CASES, captures=2)
def the_last_ones_of_a_history(compile):
    history = [rows(1), rows(2)]

    def f(x):
        y = history[-1] + history[-2] * x
        history.append(y)
        z = history[-1] * history[-3]
        history.append(z)
        return z + history[0]

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), list(history)
    history[:2] = [rows(1), rows(0)]
    yield c(rows(1)), list(history)


@case(CASES, captures=5)
def a_history_of_objects(compile):
    model = Object()
    model.seen = [Object()]
    model.seen[0].n, model.seen[0].name = torch.zeros(2), "first"

    def f(x):
        made = Object()
        made.n, made.name = model.seen[-1].n + x, "next"
        model.seen.append(made)
        return made.n, model.seen[0].name, model.seen[-2].name

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), [(s.n, s.name) for s in model.seen]
    model.seen[0].name = "other"
    yield c(rows(1)), [(s.n, s.name) for s in model.seen]
    del model.seen[1:]
    yield c(rows(1)), [(s.n, s.name) for s in model.seen]
    model.seen.clear()
    yield attempt(c, rows(1)), [(s.n, s.name) for s in model.seen]


@case(CASES)
def items_of_lists_among_the_arguments(compile):
    def f(xs, t):
        xs.append(t)
        return xs[0] + xs[-1] * xs[-2]

    def g(xs, t):
        y = xs[0]
        xs.append(t)
        xs[0] = t
        return y + xs[-2] * t

    def h(xs, t):
        xs.append(t)
        return xs[1] * 2 + xs[-2]

    def k(xs, t):
        y = xs[-1] + t
        xs.append(y)
        return y if len(xs) > 3 else xs[0]

    for f in (f, g, h, k):
        c = compile(f, dynamic=False)
        for n in (1, 2, 3, 1, 4):
            xs = [rows(i) for i in range(n)]
            yield attempt(c, xs, rows(7)), list(xs)
            yield attempt(c, xs, rows(7)), list(xs), xs[0] is xs[-1]
        xs = [rows(3)] * 2
        yield attempt(c, xs, xs[0]), list(xs), [a is xs[0] for a in xs]
        xs = [torch.ones(3, 2), rows(1)]
        yield attempt(c, xs, rows(7)), list(xs)
        yield attempt(c, [], rows(7))


@case(CASES)
def the_last_one_is_not_the_one_that_was_appended(compile):
    history = [rows(1), rows(2)]

    def f(x):
        history.append(x * 2)
        return history[-2] + history[-1]

    def g(x):
        history.append(x)
        return history[2] + x

    def h(x):
        history.append(x)
        history.sort(key=lambda t: float(t.sum()))
        return history[-1] + x

    def k(x):
        history.append(x)
        history[0] = x + 1
        return history[-1] + history[-len(history)]

    def m(x):
        history.append(x)
        del history[-1]
        return history[-1]

    def n(x):
        history.extend([x, x + 1])
        history.insert(0, x + 2)
        return history[-2]

    for f in (f, g, h, k, m, n):
        c = compile(f)
        for i in range(3):
            yield attempt(c, rows(i)), list(history)
        history[:] = [rows(1), rows(2)]


@case(CASES, captures=3)
def a_dict_of_histories(compile):
    log = {}

    def f(x):
        log.setdefault("loss", []).append(x.sum().item())
        log.setdefault("grad", []).append(x)
        return x + 1

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), log
    log["loss"] = [7]
    yield c(rows(1)), log


@case(CASES)
def defaults_that_are_set_or_not(compile):
    log = collections.OrderedDict(a=1)
    inner = collections.defaultdict(int)

    def f(x, key, default):
        return x + log.setdefault(key, default), inner.setdefault(key), log.setdefault("n", x)

    for key in ("a", "b", "c", "a", 1.5, (1, 2), "b"):
        c = compile(f)
        for default in (1, 1, 2.5):
            yield attempt(c, rows(1), key, default), dict(log), dict(inner)
    log.clear()
    for _ in range(3):
        yield attempt(c, rows(1), "a", 4), dict(log), dict(inner)
    yield attempt(c, rows(1), [], 4), dict(log)


@case(CASES)
def deques_among_the_arguments(compile):
    def f(d, x):
        d.append(x)
        return x + 1

    def g(d, x):
        d.append(x)
        return torch.stack(list(d)).sum(0)

    def h(d):
        return str(d), d.copy().maxlen

    def k(d, x):
        d.append(x.sum().item())
        d.append(x.sum().item() + 1)
        return x + 1

    c = compile(f)
    for n in (3, 3, None, 1, 0):
        d = collections.deque([rows(1), rows(2)], maxlen=n)
        yield c(d, rows(3)), list(d), d.maxlen
    for f in (g, h, k):
        c = compile(f, dynamic=False)
        for n in (3, 3, None, 1):
            d = collections.deque([rows(1), rows(2)], maxlen=n)
            yield (c(d) if f is h else c(d, rows(3))), list(d), d.maxlen


@case(CASES)
def appended_in_other_ways(compile):
    class Loud(collections.deque):
        def append(self, x):
            super().append(x)
            super().append(x + 1)

    loud, plain, history = Loud(maxlen=3), collections.deque(maxlen=3), [rows(0)]

    def f(x, n):
        loud.append(x)
        list(map(plain.append, [x] * n))
        append = history.append
        append(x)
        history[len(history) :] = [x + 1]
        return x + history[-1]

    c = compile(f)
    for i in range(5):
        yield c(rows(i), i % 3), list(loud), list(plain), list(history)


@case(CASES)
def one_list_twice(compile):
    def f(xs, ys, x):
        xs.append(x)
        return ys[-1] + ys[0]

    c = compile(f)
    for _ in range(2):
        xs, ys = [rows(1)], [rows(2), rows(3)]
        yield c(xs, ys, rows(5)), xs, ys
        yield c(ys, ys, rows(6)), ys
        yield c(ys, xs, rows(7)), xs, ys


@case(CASES)
def elements_at_the_left(compile):
    d = collections.deque()
    few = collections.deque(maxlen=2)

    def f(x):
        d.appendleft(x)
        return x + 1

    c = compile(f)
    yield c(rows(1)), list(d)
    yield c(rows(2)), list(d)
    k = compile(lambda x: few.appendleft(x))
    yield k(rows(1)), list(few)
    yield k(rows(2)), list(few)
    yield k(rows(3)), list(few)


@case(CASES, captures=1)
def numbers_that_are_only_written(compile):
    model = Object()
    model.a = model.b = model.c = 0.0
    model.name, model.flag = "none", False
    log = {"a": 0.0, "b": 0.0}

    def f(x):
        model.a, model.b = x.sum().item(), x.mean().item()
        model.c = x.max().item()
        log["a"], log["b"] = model.a, model.b
        model.name, model.flag = "some", True
        return x

    c = compile(f)
    for i in range(5):
        yield c(rows(i)), dict(vars(model)), dict(log)
        if i % 2:
            model.name, model.flag = "other", i


@case(CASES)
def what_is_written_is_there_already(compile):
    model = Object()
    model.a, model.b, model.c = 1, 2.0, "x"

    def f(x):
        model.a = 1
        model.b = 3.0
        model.c = "y"
        model.b = 2.0
        model.c = "x"
        return x + 1

    c = compile(f)
    for a, b, name in ((1, 2.0, "x"), (2, 2.0, "x"), (1, 2, "x"), (True, 2.0, "z"), (1, -0.0, "y")):
        model.a, model.b, model.c = a, b, name
        for _ in range(2):
            yield c(rows(1)), dict(vars(model)), [type(v) for v in vars(model).values()]


@case(CASES, captures=3)
def a_dict_is_updated_with_numbers(compile):
    log, counts = {"n": 0, "kept": 1}, collections.defaultdict(int)

    def f(x):
        mean = x.mean().item()
        log.update(mean=mean, n=log["n"] + 1)
        log.update({"max": x.max().item(), "kept": log["kept"]}, min=x.min().item())
        counts.update({"a": counts["a"] + 2})
        own = dict(a=1)
        own.update(mean=mean)
        own.update(own, b=mean + 1)
        return x * log["n"] * counts["a"], own

    c = compile(f)
    for i in range(5):
        yield c(torch.tensor([i, i + 1.0])), dict(log), dict(counts)
    log["mean"] = "text"
    yield c(rows(1)), dict(log), dict(counts)


@case(CASES)
def what_a_dict_is_updated_with(compile):
    log, other, ordered = {"a": 1}, {"b": torch.ones(2)}, collections.OrderedDict(a=1)

    class Pairs:
        def keys(self):
            return ["p", "q"]

        def __getitem__(self, key):
            return key * 2

    def f(x, source):
        log.update(source)
        ordered.update(source, x=x)
        return x + len(log), list(ordered)

    def g(x):
        log.update(other, a=x)
        log.update([("c", x), ("d", 2)])
        log.update(log)
        log.update(Pairs())
        return log["b"] + x

    c, k = compile(f), compile(g)
    for source in ({}, {"b": 2}, {"b": 3}, {1: 2, "c": 3}, [("b", 4)], {"b": 2}, {(1, 2): 5}):
        yield attempt(c, rows(1), source), dict(log), list(ordered.items())
    for i in range(3):
        yield k(rows(i)), dict(log)
    other["e"] = 5
    yield k(rows(1)), dict(log)
    other["b"] = torch.zeros(2)
    yield k(rows(1)), dict(log), log["b"] is other["b"]
    yield attempt(c, rows(1), 5), dict(log)


NUMBERS = """
sum(d)
max(d)
list(d)
[v + 1 for v in d]
d == collections.deque([6.0, 1.0])
6.0 in d
6.0 in collections.deque([1, n])
str(d)
d.count(6.0)
d.index(m)
sorted(d)
tuple(reversed(d))
torch.tensor(list(d))
np.array(d)
(d + d)[2]
(d * 2).pop()
[a * b for a, b in zip(d, d)]
list(itertools.accumulate(d))
dict(enumerate(d))
copy.copy(d)[0] + 1
d.copy().popleft() + 1
(d.rotate(1), d[0], d[-1])
(d.reverse(), d[0])
(d.remove(6.0), list(d)) if n == 6 else d[0]
(d.insert(0, m), d[0])
d < collections.deque([7.0])
(lambda a, b: a - b)(*d)
f"{d}"
any(d)
set(d)
math.fsum(d)
(d.extend([n]), sum(d))
(d.appendleft(m), d[0] * 2)
next(iter(d)) * 2
functools.reduce(lambda a, b: a * b, d)
torch.ones(2) * d[0]
""".strip().splitlines()


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_in_a_deque(text):
    names = {
        "collections": collections,
        "copy": copy,
        "functools": functools,
        "itertools": itertools,
        "math": math,
        "np": np,
        "torch": torch,
    }
    source = f"""
def f(t):
    n, m = t.sum().item(), t[0].item()
    d = collections.deque()
    d.append(n)
    d.append(m)
    return {text}
"""

    def program(compile):
        space = dict(names)
        exec(source, space)
        c = compile(space["f"])
        for values in ([1.0, 5.0], [2.0, 5.0], [1.0, 5.0], [6.0, 0.0], [0.0, 0.0], [1.5, 2.0]):
            yield attempt(c, torch.tensor(values))

    run(program, None)


test_sequences = check_all(CASES)
