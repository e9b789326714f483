"""What a call does besides returning: objects it changes, what it prints, in which order.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import collections
import contextlib
import copy
import io
import itertools
import logging
import logging.handlers
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

import magpy
from tests.soundness.worlds import attempt, case, check_all

CASES = []
x = torch.arange(3.0)


@case(CASES)
def containers_of_every_kind_are_changed(compile):
    items, table, names = [1, 2, 3], {"z": 1}, {"x"}
    queue = collections.deque([1, 2], maxlen=3)
    counts, grouped = collections.Counter(), collections.defaultdict(list)
    order = collections.OrderedDict(p=1, q=2)

    def f(t, k):
        items.append(t.sum())
        items[0] = k
        items.insert(1, "in")
        del items[2]
        table.setdefault(k, []).append(t)
        table["last"] = t * 2
        names.add(k)
        queue.append(k)
        counts[k] += 1
        grouped[k].append(len(items))
        order.move_to_end("p")
        return len(items)

    f = compile(f)
    for k in ("a", "b", "b", "c"):
        yield f(x, k), items, table, names, queue, counts, grouped, order


def _logger(name, *handlers):
    logger = logging.Logger(name)
    for handler in handlers:
        logger.addHandler(handler)
    return logger


class Keep(logging.Handler):
    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def emit(self, record):
        self.lines.append(record.getMessage())


@case(CASES, refused="Logger.warning runs Python that changes")
def what_a_handler_keeps_is_counted(compile):
    lines = []
    logger = _logger("kept", Keep(lines))

    def f(t):
        logger.warning("called")
        return t + 1, len(lines)

    f = compile(f)
    for _ in range(4):
        yield f(x), lines


@case(CASES, refused="a handler of the program's runs in it")
def what_a_handler_keeps_is_added_to(compile):
    lines = []
    logger = _logger("added", Keep(lines))

    def f(t):
        lines.append("before")
        logger.warning("called")
        lines.append("after")
        return t + 1

    f = compile(f)
    for _ in range(4):
        yield f(x), lines


@case(CASES, refused="a handler of the program's runs in it")
def what_a_handler_keeps_is_nobodys(compile):
    lines = []
    logger = _logger("only", Keep(lines))

    def f(t, n):
        logger.warning("called %s", n)
        return t + 1

    f = compile(f)
    for n in (1, 1, 2):
        yield f(x, n), lines


@case(CASES, refused="Logger.warning changes an object that the call looks at")
def records_of_pythons_own_handler_are_counted(compile):
    handler = logging.handlers.MemoryHandler(1000)
    logger = _logger("memory", handler)

    def f(t):
        logger.warning("called")
        return t + 1, len(handler.buffer)

    f = compile(f)
    for _ in range(4):
        yield f(x)


@case(CASES, refused="looks at 'n' that the call has changed")
def a_handler_looks_at_what_the_call_sets(compile):
    class Step:
        n = 0

    lines = []

    class Numbered(logging.Handler):
        def emit(self, record):
            lines.append((Step.n, record.getMessage()))

    logger = _logger("numbered", Numbered())

    def f(t, n):
        Step.n = n
        logger.warning("called")
        Step.n = 0
        return t + n

    f = compile(f)
    for n in (1, 1, 2, 2):
        yield f(x, n), lines


@case(CASES, refused="Python of the program that nobody watches there")
def output_goes_to_what_has_everything_far_away_in_reach(compile):
    class Any:
        pass

    class Out:
        def write(self, text):
            lines.append(text)

        def flush(self):
            pass

    lines, shell, counter, out = [], Any(), Any(), Out()
    counter.n, out.shell, shell.names = 0, shell, {"counter": counter}

    def f(t):
        counter.n += 1
        print("call", counter.n)
        return t + 1

    f = compile(f)
    for _ in range(4):
        with contextlib.redirect_stdout(out):
            r = f(x)
        yield r, counter.n, lines


@case(CASES, refused="changes an object that the call looks at")
def a_function_called_for_its_effect_keeps_what_is_counted(compile):
    kept = []

    @magpy.effect
    def keep(v):
        kept.append(v)

    def f(t, n):
        keep(n)
        return t + len(kept)

    f = compile(f)
    for n in (1, 1, 2):
        yield f(x, n), kept


@case(CASES, captures=2)
def a_meter_is_printed_that_the_call_updates(compile):
    class Meter:
        total, n = 0.0, 0

        def update(self, v):
            self.total += v
            self.n += 1

        def __str__(self):
            return f"{self.total / self.n:.3f} ({self.n})"

    meter, out = Meter(), io.StringIO()

    def f(t):
        loss = (t * t).sum()
        meter.update(loss.item())
        print("loss", meter, sep=": ")
        return loss

    f = compile(f)
    for i in range(5):
        with contextlib.redirect_stdout(out):
            r = f(x + i)
        yield r, out.getvalue(), meter.total, meter.n


@case(CASES)
def what_is_printed_raises_halfway(compile):
    class Named:
        n = 0

        def __str__(self):
            if self.n == 2:
                raise ValueError("two")
            return f"<{self.n}>"

    class Nameless(Named):
        def __str__(self):
            self.n += 1
            return self.n

    out = io.StringIO()

    def f(t, v, n):
        v.n = n
        try:
            print("before", v, "after", sep="-")
        except (ValueError, TypeError) as e:
            return str(e)
        return t + n

    f = compile(f)
    for v in (Named(), Nameless()):
        for n in (1, 1, 2, 2, 1, 3):
            with contextlib.redirect_stdout(out):
                r = f(x, v, n)
            yield r, out.getvalue()


@case(CASES)
def attributes_are_set_deleted_and_counted(compile):
    class Holder:
        total = 0

    h = Holder()

    def f(t):
        h.n = getattr(h, "n", 0) + 1
        Holder.total += 1
        h.last = t * h.n
        if hasattr(h, "once"):
            del h.once
        return h.last + h.total

    f = compile(f)
    for i in range(4):
        yield f(x + i), vars(h), Holder.total
    h.once = 1
    h.n = 100
    yield f(x), vars(h), Holder.total


class Counts:
    """Two counters in one dict."""

    def __init__(self):
        self.n, self.m = 5, 12.0


STORES_BETWEEN = [
    "s.m += 2",
    "s.m += s.n",
    "s.m = 12.0; s.m += 1",
    "s.m = s.n; s.m += 1",
    "s.m = 7; s.m += 1",
    "s.m, s.n = s.n, s.m",
    "del s.m; s.m = 1.0; s.m += 1",
    "s.__dict__['m'] = 3.0; s.m += 1",
    "s.kept = dict(vars(s)); s.m += 1",
    "s.kept = s.m; s.m += 1",
    "s.m = s.m; s.m += 1",
]


@case(CASES)
def several_counters_of_one_object(compile):
    for stores in STORES_BETWEEN:
        s = Counts()
        space = {"s": s}
        exec(f"def f(t):\n    s.n += 1; {stores}\n    return t * s.m, s.n", space)
        f = compile(space["f"])
        for i in range(4):
            yield f(x + i), vars(s)
        s.m = 40.0
        yield f(x), vars(s)
        s.m = 2
        yield f(x), vars(s)


@case(CASES)
def globals_and_nonlocals_are_rebound(compile):
    module = type(sys)("effects_world")
    exec(
        "count = 0\ndef f(t):\n    global count\n    count += 1\n    return t * count", vars(module)
    )
    total = 0.0

    def g(t):
        nonlocal total
        total += 1.5
        return module.f(t) + total

    g = compile(g)
    for _ in range(4):
        yield g(x), module.count, total
    module.count = 40
    yield g(x), module.count


@case(CASES)
def state_read_back_within_the_call(compile):
    class Cell:
        pass

    c = Cell()
    c.h = torch.zeros(3)
    c.log = []

    def f(t):
        c.h = c.h + t
        c.log.append(c.h)
        c.h = c.h * 2
        return c.h, c.log[-1], len(c.log)

    f = compile(f)
    for _ in range(3):
        yield f(x), c.h, c.log
    c.h = torch.ones(3)
    c.log.clear()
    yield f(x), c.h, c.log


@case(CASES, refused="the handlers of pytest hear of it, and a list of what is warned of")
def printed_logged_and_warned_in_order(compile):
    out, log = io.StringIO(), io.StringIO()
    logger = logging.getLogger("soundness.effects")
    handler = logging.StreamHandler(log)

    def f(t):
        print("first", t.shape)
        logger.warning("value %d", 3)
        t = t * 2
        print("second", t, file=sys.stdout)
        warnings.warn("third", stacklevel=1)
        return t

    f = compile(f)
    logger.addHandler(handler)
    try:
        for i in range(3):
            with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = f(x + i)
            texts = [str(w.message) for w in caught if w.category is not magpy.MagpyWarning]
            yield result, out.getvalue(), log.getvalue(), texts
    finally:
        logger.removeHandler(handler)


@case(CASES)
def exceptions_that_are_made_with_effects(compile):
    log = []

    class Counted(ValueError):
        def __new__(cls, *args):
            log.append(args)
            return super().__new__(cls, *args)

        def __init__(self, text, code):
            super().__init__(text)
            self.code = code

    def f(t, raises):
        error = Counted("text", 3)
        if raises:
            raise error
        return error, t + 1

    f = compile(f)
    for raises in (True, False, True, False, True, False):
        r = attempt(f, x, raises)
        e = r if raises else r[0]
        yield type(e), e.args, e.code, list(log)


@case(CASES)
def exceptions_after_effects(compile):
    log = []

    def f(t, bad):
        log.append("begin")
        t.mul_(2)
        try:
            if bad == "inner":
                raise KeyError(bad)
            if bad:
                raise ValueError(bad)
        except KeyError as error:
            log.append(str(error))
        finally:
            log.append("end")
        return t + 1

    f = compile(f)
    for bad in ("", "", "inner", "outer", "inner", "outer", ""):
        t = x.clone()
        yield attempt(f, t, bad), t, log


@case(CASES)
def items_of_what_has_none(compile):
    def delete(n):
        torch.manual_seed(3)
        del n["a"]

    def store(n):
        torch.manual_seed(3)
        n[0] = 1

    def delete_of_data(t):
        n = t.sum().item()
        torch.manual_seed(3)
        del n["a"]

    for f in map(compile, (delete, store)):
        for n in (2, 3, 4, 2, 1.5):
            yield attempt(f, n)
    f = compile(delete_of_data)
    for n in (2, 3, 4, 2):
        yield attempt(f, x + n)


@case(CASES)
def context_managers_of_the_program(compile):
    depth = []

    @contextlib.contextmanager
    def level(name):
        depth.append(name)
        try:
            yield len(depth)
        finally:
            depth.pop()

    class Swallow:
        caught = None

        def __enter__(self):
            return self

        def __exit__(self, kind, value, tb):
            self.caught = kind
            return kind is ZeroDivisionError

    s = Swallow()

    def f(t, k):
        with level("a") as n, level("b") as m:
            t = t * n + m
        with s:
            t = t + 1 / k
        return t, depth

    f = compile(f)
    for k in (1, 2, 0, 1, 0):
        yield f(x, k), depth, s.caught


@case(CASES)
def returned_objects_are_new_each_time(compile):
    Point = collections.namedtuple("Point", "a b")

    class Node:
        def __init__(self, value):
            self.value, self.next = value, None

    def f(t):
        n, m = Node(t * 2), Node([t, 1])
        n.next, m.next = m, n
        shared = [t + 1]
        return (
            n,
            Point(shared, {"s": shared}),
            {1, 2},
            collections.deque([t]),
            range(2),
            slice(1, 2),
        )

    f = compile(f)
    results = [f(x + i) for i in range(3)]
    yield [(r[0], r[1], r[2], r[3], r[4], r[5]) for r in results]
    yield [r[0].next.next is r[0] for r in results], [r[1].a is r[1].b["s"] for r in results]
    yield len({id(r[0]) for r in results}), results[0][0] is not results[1][0]


@case(CASES, refused="a generator is kept")
def returned_functions_and_generators(compile):
    def f(t, k):
        y = t * k

        def later(z, k=k):
            return y + z * k

        return later, (v * 2 for v in [y, t]), iter([1, 2]), map(len, ["a", "bb"]), later.__name__

    f = compile(f)
    for k in (2, 2, 3):
        later, gen, it, mapped, name = f(x, k)
        yield later(1), list(gen), list(it), list(mapped), name


@case(CASES, refused="an iterator from outside is consumed")
def iterators_from_outside_are_consumed(compile):
    numbers, squares = iter([1.0, 2.0, 3.0, 4.0]), (i * i for i in range(10))
    count = itertools.count(5)

    def f(t):
        return t * next(numbers) + next(squares) + next(count)

    f = compile(f)
    for _ in range(3):
        yield f(x)
    yield list(numbers), next(squares), next(count)


@case(CASES, refused="a suspended generator from outside is resumed")
def generator_and_send(compile):
    def accumulate():
        total = 0.0
        while True:
            total += yield total

    g = accumulate()
    next(g)

    def f(t):
        return t + g.send(1.0)

    f = compile(f)
    for _ in range(4):
        yield f(x)


@case(CASES)
def recursion_and_compiled_inside_compiled(compile):
    def walk(t, n):
        return t if n == 0 else walker(t * 2, n - 1) + n

    walker = compile(walk)
    inner = compile(lambda t: t + 1)
    outer = compile(lambda t, n: inner(t) * 2 + walker(t, n))
    for n in (3, 3, 1, 0, 3):
        yield walker(x, n), outer(x, n), inner(x)


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def copies_and_reductions_inside(compile):
    config = {"a": [1, 2], "t": torch.ones(3)}

    def f(t):
        c = copy.deepcopy(config)
        c["a"].append(3)
        s = copy.copy(config)
        s["b"] = t
        return c, s, s["a"] is config["a"], c["t"] is config["t"]

    f = compile(f)
    for i in range(3):
        yield f(x + i), config
    config["a"].append(9)
    yield f(x), config


@case(CASES)
def frames_locals_and_names(compile):
    def f(t, k=1):
        y = t + k
        here = sys._getframe()
        return sorted(locals()), here.f_code.co_name, here.f_lineno - here.f_code.co_firstlineno, y

    f = compile(f)
    yield f(x), f(x, 2)


@case(CASES)
def weak_references_and_finalizers(compile):
    log = []

    class Noted:
        def __del__(self):
            log.append("gone")

    def f(t):
        n = Noted()
        r = weakref.ref(n)
        alive = r() is n
        del n
        return t + 1, alive, r() is None

    f = compile(f)
    for _ in range(3):
        yield f(x), log


@case(CASES, compilers="AOTAutograd switches anomaly detection for all threads while it works")
def threads_inside_and_outside(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    results = {}

    def work(i):
        with torch.no_grad():
            results[i] = [f(x + i) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    yield dict(sorted(results.items()))


@case(CASES, refused="an event loop asks the system")
def coroutines_and_async_iteration(compile):
    import asyncio

    async def scale(t, k):
        return t * k

    async def f(t):
        a = await scale(t, 2)
        b = await scale(t, 3)
        return a + b

    g = compile(lambda t: asyncio.run(f(t)))
    for i in range(2):
        yield g(x + i)


@case(CASES)
def time_and_identifiers(compile):
    import time

    def f(t):
        start = time.perf_counter()
        y = t * 2
        return y, time.perf_counter() >= start, isinstance(id(y), int), hash("a") == hash("a")

    f = compile(f)
    yield f(x), f(x)


@case(CASES, refused="a file is opened")
def files_are_written(compile):
    import os
    import tempfile

    handle, path = tempfile.mkstemp()
    os.close(handle)

    def f(t):
        with open(path, "a") as out:
            out.write(f"{t.sum().item()}\n")
        return t + 1

    try:
        f = compile(f)
        for i in range(3):
            result = f(x + i)
            with open(path) as written:
                seen = written.read()
            yield result, seen
    finally:
        os.unlink(path)


@case(CASES)
def callbacks_of_the_caller(compile):
    log = []

    class Observer:
        def on(self, name, value):
            log.append((name, value.sum()))

    def f(t, observers):
        for o in observers:
            o.on("in", t)
        y = t * 2
        for o in observers:
            o.on("out", y)
        return y

    f = compile(f)
    for observers in ([], [Observer()], [Observer(), Observer()], [Observer()]):
        yield f(x, observers), log


@case(CASES)
def modules_made_and_registered_inside(compile):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None

        def forward(self, t):
            if self.layer is None:
                self.layer = nn.Linear(t.shape[-1], 2)
            return self.layer(t)

    m = Lazy()
    f = compile(m)
    for _ in range(4):
        yield f(x), dict(m.state_dict())


@case(CASES, refused="a parameter gets its shape")
def parameters_get_their_shapes_in_the_first_call(compile):
    torch.manual_seed(0)
    m = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.ReLU())
    f = compile(m)
    for _ in range(4):
        yield f(torch.ones(2, 4)), dict(m.state_dict()), repr(m)


@case(CASES)
def sorting_and_functional_tools(compile):
    import functools
    import operator

    words = ["bb", "a", "ccc"]

    def f(t, key):
        best = sorted(words, key=key, reverse=True)
        total = functools.reduce(operator.add, [t * len(w) for w in best])
        pairs = list(zip(best, map(str.upper, best), strict=True))
        words.sort(key=key)
        return total, best, pairs, any(len(w) > 2 for w in words), max(words, key=len)

    f = compile(f)
    for key in (len, str, len):
        yield f(x, key), words
    words.append("dddd")
    yield f(x, len), words


@case(CASES)
def containers_printed_between_two_changes(compile):
    names, data, queue = {1}, bytearray(b"a"), collections.deque([1], maxlen=3)
    nested = {"k": {1}}

    def f(t, out):
        names.add(len(names) + 1)
        print(names, file=out)
        data.extend(b"b")
        print(data, file=out)
        queue.append(len(data))
        print(queue, file=out)
        nested["k"].add(len(names) + 5)
        print(nested, file=out)
        names.add(100 + len(names))
        data[0] = 66
        queue.appendleft(2)
        nested["k"].clear()
        return t * 2

    f = compile(f)
    for _ in range(3):
        out = io.StringIO()
        yield f(x, out), out.getvalue(), names, data, queue, nested


@case(CASES)
def class_attributes_are_deleted(compile):
    class Base:
        b = 5

    class S(Base):
        a = 1
        b = 2

    def f(t):
        if "b" in vars(S):
            del S.b
        del S.a
        return t + S.b

    f = compile(f)
    for _ in range(3):
        yield attempt(f, x), sorted(k for k in vars(S) if k[0] != "_")
    S.a = 3
    yield attempt(f, x), hasattr(S, "a")


@case(CASES)
def keys_that_are_deleted_and_stored_again(compile):
    """They come last, whatever other keys there are by then."""
    seen, o = {"a": 0, "b": 1}, type("O", (), {})()
    o.x, o.y = 1, 2

    def again(v):
        del seen["a"]
        seen["a"] = v

    def same():
        kept = seen["b"]
        del seen["b"]
        seen["b"] = kept

    def attribute(v):
        del o.x
        o.x = v

    again, same, attribute = compile(again), compile(same), compile(attribute)
    for n in range(3):
        for other in ("", "p", "q", "r", "a", "b"):
            if other:
                seen[f"{other}{n}" if other in "pqr" else other] = n
                setattr(o, f"{other}{n}", n)
            again(sum)
            yield list(seen.items()), list(vars(o).items())
            same()
            attribute(sum)
            yield list(seen.items()), list(vars(o).items())


@case(CASES)
def keys_that_no_dict_can_have(compile):
    kept = {"a": 1}

    def f(d):
        found = []
        for key in (slice(1), [], {}):
            for change in (lambda: d.__setitem__(key, 1), lambda: d.pop(key), lambda: d[key]):  # noqa: B023
                try:
                    change()
                except TypeError as error:
                    found.append(str(error))
        try:
            del d[:1]
        except TypeError as error:
            found.append(str(error))
        kept[[]] = found

    f = compile(f)
    for d in ({}, {}, {"a": 2}):
        yield str(attempt(f, d)), d, kept


@case(CASES)
def what_a_call_has_stored_is_popped(compile):
    t = torch.ones(2)
    kept, row = {"a": "before"}, ["before"]

    def f(given, last):
        kept["a"], old = given, kept["a"]
        popped = kept.pop("a")
        kept["a"] = last
        row.append(given)
        row.pop()
        row[0] = last
        return popped is given, old

    f = compile(f)
    for last in ("x", "x", "y", "x", sum, sum, sum):
        yield f([t], last), kept, row


@case(CASES, compilers="AOTAutograd counts a change of an input several times")
def versions_after_a_call_that_an_entry_gave_up(compile):
    """An entry that is left has changed nothing, as autograd sees it, too."""
    state, weight = torch.zeros(3), torch.ones(3, requires_grad=True)

    def f(x):
        state.add_(x)
        return (weight * state).sum() * (2 if state.max() > 5 else 3)

    f = compile(f)
    for n in (1.0, 1.0, 4.0, 1.0, -9.0, 1.0, 8.0):
        out = weight * state
        yield f(torch.full((3,), n)), state._version, weight._version
        state.zero_() if n < 0 else None
        yield attempt(lambda out=out: out.sum().backward()), weight.grad


@case(CASES, refused="a tensor that the call changes afterwards")
def what_is_printed_may_have_the_memory_of_what_is_changed(compile):
    t, u, printed = torch.zeros(2), torch.ones(2), io.StringIO()

    def listed(given, changed):
        print(given, file=printed)
        changed.add_(1)

    def alone(given, changed):
        printed.write(str(changed.shape))
        print(given, file=printed)
        changed.mul_(2)

    listed, alone = compile(listed), compile(alone)
    for given in ([u], [u], [t], [t[:1]], [u]):
        yield listed(given, t), alone(given[0], t), printed.getvalue(), t


test_effects = check_all(CASES)


def test_several_counters_of_one_object_are_inputs():
    s = Counts()

    def f(t):
        s.n += 1
        s.m += 2
        return t * s.m

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        assert torch.equal(compiled(x), x * (14.0 + 2 * i))
    assert (magpy.stats(compiled).captures, magpy.stats(compiled).hits) == (1, 3)
    assert vars(s) == {"n": 9, "m": 20.0}


@pytest.mark.parametrize(
    "key", ["k", "".join(["k", "ey"]), 0, 1000, -1, True, None, 2.5, (1, "a"), (), b"k"]
)
@pytest.mark.parametrize("kind", [dict, collections.Counter, collections.OrderedDict])
def test_counters_under_any_key_are_inputs(kind, key):
    counts = kind({key: 0, "other": 3})

    def f(t):
        counts[key] += 1
        return t * counts[key]

    compiled = magpy.compile(f, backend="eager")
    for i in range(8):
        assert torch.equal(compiled(x), x * (i + 1))
    assert (magpy.stats(compiled).captures, magpy.stats(compiled).hits) in [(1, 7), (2, 6)]
    assert counts == {key: 8, "other": 3}


def test_equal_keys_of_other_types_and_objects_are_one_counter():
    counts = {True: 0, "a1": 0, 70000: 0}

    def f(t, n, name, large):
        counts[n] += 1
        counts[name] += 1
        counts[large] += 1
        return t * counts[1] + counts["a1"]

    compiled, eager = magpy.compile(f, backend="eager", dynamic=False), f
    for n in (1, True, 1.0, 1, True, 1.0):
        given = x, n, "".join(["a", "1"]), int("70000")
        before = dict(counts)
        result = compiled(*given)
        after = dict(counts)
        counts.update(before)
        assert torch.equal(result, eager(*given))
        assert after == counts == dict.fromkeys([True, "a1", 70000], before[1] + 1)
        assert list(map(type, counts)) == [bool, str, int]


def test_warnings_of_a_backend_are_not_the_programs():
    def backend(gm, inputs):
        warnings.warn("from the compiler", DeprecationWarning, stacklevel=1)
        return gm

    def f(t):
        warnings.warn("from the program", stacklevel=1)
        return t + 1

    compiled = magpy.compile(f, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            compiled(x)
    caught = [w for w in caught if w.category is not magpy.MagpyWarning]
    assert [str(w.message) for w in caught] == ["from the program"] * 3
    strict = magpy.compile(lambda t: t + 2, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert torch.equal(strict(x), x + 2)
        filters = warnings.filters
    assert magpy.stats(strict).hits == 2
    assert ("error", None, Warning, None, 0) in filters


@pytest.mark.parametrize("made", ["outside", "inside"])
def test_adapters_of_loggers_tell_the_programs_line(made):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(filename)s:%(lineno)d:%(funcName)s:%(message)s"))
    logger = logging.Logger("adapted")
    logger.addHandler(handler)
    adapter = logging.LoggerAdapter(logger, {"z": 1})

    def told(x):
        (adapter if made == "outside" else logging.LoggerAdapter(logger, {"z": 2})).error("ad")
        return x * 2

    c = magpy.compile(told, backend="eager")
    for f in (told, c, c, c):
        f(torch.ones(1))
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert len(set(lines)) == 1
    assert magpy.stats(c).hits or made == "inside"


def test_who_logs_the_stack_is_not_served():
    logger = logging.Logger("stacks")
    logger.addHandler(logging.StreamHandler(io.StringIO()))

    def told(x):
        logger.error("here", stack_info=True)
        return x * 2

    c = magpy.compile(told, backend="eager")
    for _ in range(3):
        c(torch.ones(1))
    assert not magpy.stats(c).hits
    assert "stack_info" in str(magpy.stats(c).reasons)
