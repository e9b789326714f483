"""A driver does what its function does: values, order of calls, exceptions, variables."""

import ast
import contextlib
import inspect
import sys
import traceback
import types

import pytest

from magpy import _interp
from magpy.instrument import driver_code, regions
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

    def indices(x):
        xs = [list(range(9))] * 3
        n = x
        n += xs[odd(x)][odd(1) : odd(8) : odd(2)][odd(n - x)]
        grid = {(x, odd(3)): n, (odd(5), odd(n)): x}
        return grid[x, odd(3)] + grid[odd(5), odd(n)], xs[n - n][x : len(xs) + odd(0)]

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
        (indices, [(2,), (1,)]),
        (matches, [(1,), (3,)]),
    ]


def as_it_is(f):
    return f


LEVEL = 10


def bump():
    global LEVEL
    LEVEL += 1
    return odd(LEVEL)


def kinds():
    """What the splitter got wrong once, each for its kind."""

    def a_local_is_read_when_its_loop_comes_back_after_an_exception(xs):
        s = 0
        for x in xs:
            try:
                odd(x)
                t = s + x
                s = t * 2
                u = 1 / (x - 2)
                odd(u)
            except ZeroDivisionError:
                odd("zero")
        return s

    def an_unpacking_stores_before_it_fails(xs):
        n = len(xs) + 1
        a = b = 0
        with contextlib.suppress(ValueError):
            odd(0)
            a, (b, *_) = n, xs
            odd(a)
        return a, b

    def an_inner_function_is_made_before_what_it_reads(x):
        def read():
            return y + 1

        odd(x)
        y = x * 2
        z = read()
        odd(z)
        return z

    def a_generator_is_kept(x):
        m = x * 2
        odd(m)
        k = x + 1
        values = iter(k * v for v in [1, 2])
        odd(k)
        k = x + 10
        return next(values), k, m

    def a_generator_is_used_up(x):
        k = x + 1
        s = sum(k * v for v in [1, 2])
        odd(k)
        k = s + 10
        return k

    def a_global_is_read_before_it_changes(x):
        m = x * 2
        odd(m)
        first = LEVEL + odd(bump())
        second = m
        second += LEVEL + odd(bump())
        return second, first

    def a_target_is_read_before_the_value(xs):
        m = len(xs)
        xs = [m, *xs]
        xs[0] += len([odd(xs.append(m))]) + odd(xs.pop())
        xs[odd(len(xs)) - 2] += odd(xs.pop())
        return xs

    def an_argument_is_unpacked_before_the_next(x):
        steps = []

        def step():
            steps.append(x)
            yield x

        m = x * 2
        return odd(*step(), odd(len(steps))), len([*step(), odd(len(steps))]) + m

    def an_assignment_in_an_expression_may_not_happen(x):
        y = 0
        odd(x)
        z = x > 1 and (y := x + 1)
        odd(z)
        return y, z, (w := x + y) + w

    def a_local_is_only_assigned_by_an_expression(x):
        m = x * 2
        odd(m)
        z = x > 1 and (y := x + 1)
        odd(z)
        return abs(y) + m

    def a_handler_forgets_its_exception(x):
        e = x + 1
        try:
            odd(x)
            y = 1 / (x - 1)
        except ZeroDivisionError as e:
            y = len(str(e))
            odd(y)
        return y + e

    def a_handler_raises_again(x):
        try:
            try:
                y = 1 / (x - 1)
                odd(y)
            except ZeroDivisionError as e:
                y = len(str(e)) + 1
                odd(y)
                z = str(sys.exc_info()[1])
                odd(z)
                raise
            else:
                w = y + 1
                odd(w)
                v = w * 2
            finally:
                u = x * 3
                odd(u)
                u = u + 1
        except ZeroDivisionError as e:
            return type(e).__name__, u, z, repr(e.__context__)
        return u, v

    def a_class_reads_its_annotations(x):
        kind = type(x)
        odd(x)

        class Inner:
            y: kind = x + 1

        odd(Inner.y)
        return Inner.__annotations__["y"].__name__, Inner.__qualname__

    def an_annotation_assigns_nothing(x):
        odd(x)
        late: int
        y = x + 1
        odd(y)
        return late + y  # noqa: F821 - it is a local

    def an_inner_function_declares(x):
        n = x + 1

        def declares():
            global LEVEL
            nonlocal n
            n = n + 1
            return n

        odd(n)
        declares()
        n = n * 2
        odd(n)
        return n + declares()

    def an_inner_class_declares(x):
        m = x * 2
        n = x + 1
        odd(n)

        class Inner:
            nonlocal n
            n = n + 1

        y = n * 2
        odd(y)
        return y + m

    def a_match_is_cut(x):
        match [x, odd(x + 1)]:
            case [1, y]:
                z = y * 2
                odd(z)
                w = z + 1
            case [_, *rest] if odd(len(rest)):
                w = sum(rest)
                odd(w)
                w = w + 1
        return w

    def a_head_stays(xs):
        it = list(xs)
        s = 0
        while odd(len(it)):
            x = it.pop() * 2
            s = s + x
        else:
            s = s + 100
        for x in odd(list(xs)):
            s = s + x
        else:
            odd(s)
            s = s * 2
        return s

    def a_local_only_goes_through_a_region(x):
        y = abs(x)
        odd(x)
        if x > 1:
            y = x + 1
        if odd(x) > 1:
            z = y + 1
            y = z
        return y

    @as_it_is
    @as_it_is
    def is_decorated(x):
        y = x * 2
        odd(y)
        z = y + 1
        w = 1 / (x - 1)
        odd(w)
        return z / (x - 2)

    def another_super(x):
        class super:  # noqa: A001 - the compiler knows the name
            value = x * 2

        class Inner:
            def method(self, y):
                z = y + 1
                odd(z)
                return super().value + z

        m = abs(x)
        odd(m)
        return Inner().method(m) + m

    def deletes_in_the_end(x):
        try:
            y = x * 2
            odd(y)
        finally:
            if odd(x) > 1:
                del y
        z = odd(x) + 1
        return [z, y * 2]

    def deletes_in_a_loop(xs):
        last = len(xs)
        for x in xs:
            y = last + x
            odd(y)
            with contextlib.suppress(ZeroDivisionError):
                z = y * 2
                odd(z)
                w = z / (x - 2)
                del y
                odd(w)
            s = y + x  # noqa: F821 - it may be bound
            odd(s)
        return y + last  # noqa: F821 - it may be bound

    def iterates_what_is_odd(x):
        a = x + 1
        return (
            a * 2 + sum(k * a for k in odd([1, 2, x])),
            [k // x for k in odd(range(x + 1))],
            {k: v for k, v in zip(odd("ab", 1), [a, x], strict=True) for _ in odd([1])},
        )

    def deleted_before_it_is_read(x):
        y = x + 1
        if odd(x) > 1:
            del y
        m = x * 2
        z = len([odd(x)])
        return z, y + m

    def asks_for_its_locals(x):
        unread = x * 5  # noqa: F841 - it is among the locals
        h = odd(x) + 1
        if x > 1:
            some = odd(h)  # noqa: F841 - it is among the locals where it was assigned
        late = None
        found = {name: value for name, value in locals().items() if name != "x"}
        late = list(found.items())
        odd(h)
        return late, list(locals())

    def left_unassigned(x):
        with contextlib.suppress(ZeroDivisionError):
            part = odd(x) / (x - 1)
        for i in range(x - 1):
            last = odd(i)
        if x > 2:
            branch = odd(x)
        y = x * 2
        odd(y)
        return part + y + last + branch

    return [
        (asks_for_its_locals, [(1,), (2,)]),
        (left_unassigned, [(1,), (2,), (3,)]),
        (a_local_is_read_when_its_loop_comes_back_after_an_exception, [([1, 2, 3],)]),
        (an_unpacking_stores_before_it_fails, [([],), ([1],)]),
        (an_inner_function_is_made_before_what_it_reads, [(1,)]),
        (a_generator_is_kept, [(1,)]),
        (a_generator_is_used_up, [(1,)]),
        (a_global_is_read_before_it_changes, [(1,)]),
        (a_target_is_read_before_the_value, [([1],)]),
        (an_argument_is_unpacked_before_the_next, [(1,)]),
        (an_assignment_in_an_expression_may_not_happen, [(1,), (2,)]),
        (a_local_is_only_assigned_by_an_expression, [(1,), (2,)]),
        (a_handler_forgets_its_exception, [(1,), (2,)]),
        (a_handler_raises_again, [(1,), (2,)]),
        (a_class_reads_its_annotations, [(1,)]),
        (an_annotation_assigns_nothing, [(1,)]),
        (an_inner_function_declares, [(1,)]),
        (an_inner_class_declares, [(1,)]),
        (a_match_is_cut, [(1,), (2,)]),
        (a_head_stays, [([1, 2],)]),
        (a_local_only_goes_through_a_region, [(1,), (2,)]),
        (is_decorated, [(1,), (2,), (3,)]),
        (another_super, [(1,)]),
        (deletes_in_the_end, [(1,), (2,)]),
        (deletes_in_a_loop, [([1],), ([2],), ([2, 1],)]),
        (iterates_what_is_odd, [(1,), (2,), (0,)]),
        (deleted_before_it_is_read, [(1,), (2,)]),
    ]


class Base:
    def __init__(self, v):
        self.__v = v

    def base(self):
        return 5


class Derived(Base):
    def deletes_self(self):
        m = abs(LEVEL)
        odd(m)
        del self
        super()

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
    made = [f for f, _ in closure() + kinds()]
    return {f.__name__: f for f in [*made, Derived.base, Derived.private, Derived.deletes_self]}


CASES = [
    *((f.__name__, a) for f, calls in closure() + kinds() for a in calls),
    ("base", (Derived(1),)),
    ("private", (Derived(1),)),
    ("deletes_self", (Derived(1),)),
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
    tree = regions.find(code)[0][-1]
    calls = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "odd"
    ]
    return Plan(alone=[(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) for n in calls])


def outcome(call, args):
    global LEVEL
    LEVEL = 10
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
    driver = driver_code.driver(function, made, make, as_it_is)
    assert outcome(driver, args) == expected
    for region in made.regions.values():
        assert "odd" not in region.code.co_names + region.code.co_freevars
    assert set(called) <= set(made.regions.values())


def test_regions_are_called():
    function, _ = closure()[0]
    called = []
    made = regions.split(function, lines(function))
    driver = driver_code.driver(
        function, made, lambda r, f: lambda *a: (called.append(r), f(*a))[1], as_it_is
    )
    assert driver(1) == (4, 3)
    assert called == list(made.regions.values())


def shadowed():
    class super:
        value = 3

    class Inner:
        def method(self):
            odd(1)
            return super().value + 1

    return Inner


def test_a_method_with_another_super():
    inner = shadowed()
    function = inner.method
    try:
        made = regions.split(function, expressions(function))
    except CannotSplit:  # since 3.13 the compiler asks for the class where there is none
        assert sys.version_info >= (3, 13)
        return
    driver = driver_code.driver(function, made, lambda region, f: f, lambda called: called)
    assert driver(inner()) == function(inner()) == 4


def test_a_lambda_is_found_among_others_of_its_line():
    a, b = lambda x: (odd(x) + 1) * 2, lambda x: (odd(x) + 2) * 3  # fmt: skip
    for f in (a, b):
        made = regions.split(f, expressions(f))
        driver = driver_code.driver(f, made, lambda region, g: g, as_it_is)
        assert made.regions
        assert driver(3) == f(3)
        assert driver.__code__.co_name == "<lambda>"


def generator(n):
    for i in range(n):
        a = i * 2
        b = a + 1
        got = yield b
        c = (got or 0) + b
        odd(c)


def test_a_generator_is_cut_at_its_yields():
    made = regions.split(generator, Plan())
    driver = driver_code.driver(generator, made, lambda region, f: f, as_it_is)

    def run(f):
        LOG.clear()
        g = f(3)
        return [next(g), g.send(5), next(g)], list(LOG), list(g), list(LOG)

    assert made.regions
    assert run(driver) == run(generator)


def test_what_is_deleted_in_the_end_is_an_argument_before():
    def f(xs):
        total = 0
        for x in xs:
            y = x * 2
            odd(y)
            total = total + y
            del y
        return total

    made = regions.split(f, lines(f))
    assert [r.reads for r in made.regions.values()] == [("x",), ("total", "y")]
    assert driver_code.driver(f, made, lambda region, g: g, lambda called: called)([1, 2]) == 6


def test_names_that_only_flow_are_no_arguments():
    def f(x, name):
        y = x + 1
        return {"y": abs(y), "of": [name, 1]}

    made = regions.split(f, Plan())
    (region,) = made.regions.values()
    assert region.reads == ("x",)
    driver = driver_code.driver(f, made, lambda region, g: g, as_it_is)
    assert driver(1, "a") == {"y": 2, "of": ["a", 1]}


def makes(x):
    odd(x)
    x = x + 1
    return x, lambda: traceback.format_exc()


def test_functions_that_a_driver_makes_have_the_code_of_those_of_its_function():
    made = regions.split(makes, lines(makes))
    driver = driver_code.driver(makes, made, lambda region, function: function, as_it_is)
    assert driver(1)[1].__code__ == makes(1)[1].__code__


def asks(x):
    y = x + 1
    return eval("x"), y


def asks_in_an_expression(x):
    return [sorted(locals()) for _ in range(x)]


def asks_under_another_name(x):
    asking = locals
    return asking(), x + 1


def passes_super_on(self, x):
    return id(super), x + 1


@pytest.mark.parametrize(
    "function", [asks, asks_in_an_expression, asks_under_another_name, passes_super_on]
)
def test_what_asks_for_its_frame_is_left_alone(function):
    with pytest.raises(CannotSplit, match="eval|locals|super"):
        regions.split(function, Plan())


def test_a_function_without_source_is_left_alone():
    space = {}
    # Of a file of its own: what another test has said of "<string>" is not known here.
    exec(compile("def f(x):\n    return x + 1", "<nowhere>", "exec"), space)
    with pytest.raises(CannotSplit, match="source"):
        regions.split(space["f"], Plan())


def renamed_case(x):
    h = x * 2
    odd(h)
    return h + 1


def test_code_under_another_name_is_found_where_it_was_written():
    code = renamed_case.__code__.replace(co_name="C.forward", co_qualname="C.forward")
    f = types.FunctionType(code, globals(), "forward")
    made = regions.split(f, expressions(renamed_case))
    driver = driver_code.driver(f, made, lambda region, part: part, as_it_is)
    assert {r.code.co_qualname for r in made.regions.values()} == {"C.forward"}
    assert driver.__code__.co_name == "C.forward"
    LOG.clear()
    assert (driver(4), LOG) == (9, [(8,)])


def test_code_that_was_changed_is_not_taken_for_its_source():
    code = renamed_case.__code__.replace(co_consts=(None, 3, 1), co_name="other")
    with pytest.raises(CannotSplit, match="cannot be found"):
        regions.split(types.FunctionType(code, globals(), "other"), Plan())


def test_a_loop_over_what_varies_stays_and_its_body_is_a_region():
    def f(xs, ys, n):
        total = n + 1
        for x, y in zip(xs, ys):  # noqa: B905
            a = x * y
            total = total + a
        return total

    (whole,) = regions.split(f, Plan()).regions.values()
    assert set(whole.reads) == {"xs", "ys", "n"}
    made = regions.split(f, Plan(varying={"xs"}))
    assert [set(r.reads) for r in made.regions.values()] == [
        {"n"},
        {"x", "y", "total"},
    ]
    driver = driver_code.driver(f, made, lambda region, part: part, as_it_is)
    assert driver([1, 2], [3, 4], 5) == f([1, 2], [3, 4], 5) == 17
