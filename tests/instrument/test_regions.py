"""A driver does what its function does: values, order of calls, exceptions, variables."""

import ast
import contextlib
import inspect
import traceback

import pytest

from magpy import _interp
from magpy.instrument import regions
from magpy.instrument.hoisting import Plan
from magpy.instrument.source import CannotSplit

LOG = []


def odd(*values):
    LOG.append(values)
    return values[0] if values else None


def closure():
    weight = 3
    counter = 0

    def straight(x, y=2):
        h = x * weight
        odd(h)
        z = h + y
        if z > 100:
            return "big"
        q = z - 1
        return q, h

    def loop(xs):
        out = []
        s = 0
        for i, x in enumerate(xs):
            a = x * 2
            b = a + s
            odd(i)
            s = b + 1
            out.append(s)
        return out, s

    def tries(x):
        try:
            a = x + 1
            odd(a)
            b = 1 / (x - 3)
        except ZeroDivisionError:
            odd("error")
            return a, "zero"
        else:
            odd("else")
            c = b * 2
        finally:
            odd("finally")
        return a, b, c

    def suppressed(x):
        with contextlib.suppress(ValueError):
            a = x * 2
            b = a + 1
            odd(b)
            if x == 2:
                raise ValueError
            c = b * 3
            odd(c)
        return [a + k for k in range(3)], sum(a * k for k in range(b))

    def inner_functions(x, *args, k=4, **kw):
        t = x + len(args)
        g = lambda u: u + t  # noqa: E731
        odd(t)
        r = g(k) + sum(kw.values())
        while r < 50:
            r = r * 2
            odd(r)
            if r > 45:
                break
        return r

    def shared(x):
        total = x + 1

        def add():
            return total

        odd(x)
        first = add()
        total = total + 10
        return first, add()

    def counts(x):
        nonlocal counter
        counter = counter + x
        odd(counter)
        counter = counter * 1
        return counter - counter + x

    def unbound(x):
        if x > 1:
            late = x + 1
        odd(x)
        return late + 1

    def deletes(x):
        y = x + 1
        odd(y)
        del y
        z = x + 2
        odd(z)
        return y  # noqa: F821 - it is not bound any more

    def returns_in_a_loop(xs):
        for x in xs:
            y = x * 2
            odd(y)
            if y > 4:
                w = y + 1
                return w
        return -1

    def nested_calls(x):
        return [x + odd(x + 1), abs(odd(-x)) + max(x, odd(3))]

    def order(x):
        xs = [x]
        return xs.pop() + odd(len(xs)) * 2, {"a": xs, "b": odd(x + 5)}

    def matches(x):
        z = 0
        match (x, x + 1):
            case (1, y):
                z = y + 1
            case (a, b):
                z = a * b
        odd(z)
        return z + 1

    return [
        (straight, [(1,), (40,), (1, 5)]),
        (loop, [([1, 2, 3],), ([],)]),
        (tries, [(1,), (3,)]),
        (suppressed, [(1,), (2,)]),
        (inner_functions, [(1,), (1, 2, 3)]),
        (shared, [(1,)]),
        (counts, [(1,), (4,)]),
        (unbound, [(1,), (2,)]),
        (deletes, [(1,)]),
        (returns_in_a_loop, [([1, 2, 3],), ([1],), ([],)]),
        (nested_calls, [(2,)]),
        (order, [(2,)]),
        (matches, [(1,), (3,)]),
    ]


class Base:
    def __init__(self, v):
        self.__v = v

    def base(self):
        return 5


class Derived(Base):
    def base(self):
        a = super().base()
        odd(a)
        return a + super().base() + self._Base__v

    def private(self):
        self.__p = 3
        x = self.__p * 2
        odd(x)
        return self.__p + x


def functions():
    """Functions by name, new ones: their closures hold what a call leaves in them."""
    made = [f for f, _ in closure()]
    return {f.__name__: f for f in [*made, Derived.base, Derived.private]}


CASES = [
    *((f.__name__, a) for f, calls in closure() for a in calls),
    ("base", (Derived(1),)),
    ("private", (Derived(1),)),
]
#: These are one statement each: with its line, nothing is left.
ONE_STATEMENT = ("nested_calls", "order")


def lines(function):
    """A plan in which each statement with a call of `odd` stays."""
    source, start = inspect.getsourcelines(function)
    found = [start + i for i, line in enumerate(source) if "odd(" in line]
    return Plan(lines=[(n, n) for n in found])


def expressions(function):
    """A plan in which each call of `odd` stays."""
    code = function.__code__
    tree = regions.find(code)[-1]
    calls = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "odd"
    ]
    return Plan(alone=[(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) for n in calls])


def outcome(call, args):
    LOG.clear()
    try:
        value = call(*args)
    except Exception as e:
        places = [(f.name, f.lineno, f.end_lineno, f.colno) for f in frames_of(e)]
        value = type(e), str(e), places
    return value, list(LOG)


def frames_of(error):
    return [
        f for f in traceback.extract_tb(error.__traceback__) if f.name not in ("outcome", "call")
    ]


def as_it_is(f):
    return f


@pytest.mark.parametrize("served", [True, False], ids=["served", "missed"])
@pytest.mark.parametrize("plan", [lines, expressions])
@pytest.mark.parametrize(("name", "args"), CASES)
def test_a_driver_does_what_its_function_does(name, args, plan, served):
    expected = outcome(functions()[name], args)
    function = functions()[name]
    if plan is lines and name in ONE_STATEMENT:
        with pytest.raises(CannotSplit):
            regions.split(function, plan(function))
        return
    called = []

    def make(region, function):
        def missed(*given):
            called.append(region)
            return _interp.MISS

        return function if served else missed

    made = regions.split(function, plan(function))
    driver = regions.driver(function, made, make, as_it_is)
    assert outcome(driver, args) == expected
    for region in made.regions.values():
        assert "odd" not in region.code.co_names + region.code.co_freevars
    assert set(called) <= set(made.regions.values())


def test_regions_are_called():
    function, _ = closure()[0]
    called = []
    made = regions.split(function, lines(function))
    driver = regions.driver(
        function, made, lambda r, f: lambda *a: (called.append(r), f(*a))[1], as_it_is
    )
    assert driver(1) == (4, 3)
    assert called == list(made.regions.values())


def generator(n):
    for i in range(n):
        a = i * 2
        b = a + 1
        got = yield b
        c = (got or 0) + b
        odd(c)


def test_a_generator_is_cut_at_its_yields():
    made = regions.split(generator, Plan())
    driver = regions.driver(generator, made, lambda region, f: f, as_it_is)

    def run(f):
        LOG.clear()
        g = f(3)
        return [next(g), g.send(5), next(g)], list(LOG), list(g), list(LOG)

    assert made.regions
    assert run(driver) == run(generator)


def test_names_that_only_flow_are_no_arguments():
    def f(x, name):
        y = x + 1
        return {"y": abs(y), "of": [name, 1]}

    made = regions.split(f, Plan())
    (region,) = made.regions.values()
    assert region.reads == ("x",)
    driver = regions.driver(f, made, lambda region, g: g, as_it_is)
    assert driver(1, "a") == {"y": 2, "of": ["a", 1]}


def makes(x):
    odd(x)
    x = x + 1
    return x, lambda: traceback.format_exc()


def test_functions_that_a_driver_makes_have_the_code_of_those_of_its_function():
    made = regions.split(makes, lines(makes))
    driver = regions.driver(makes, made, lambda region, function: function, as_it_is)
    assert driver(1)[1].__code__ == makes(1)[1].__code__


def asks(x):
    y = x + 1
    return locals(), y


def test_what_asks_for_its_locals_is_left_alone():
    with pytest.raises(CannotSplit, match="locals"):
        regions.split(asks, Plan())


def test_a_function_without_source_is_left_alone():
    space = {}
    exec("def f(x):\n    return x + 1", space)
    with pytest.raises(CannotSplit, match="source"):
        regions.split(space["f"], Plan())
