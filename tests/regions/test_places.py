"""A refused line in every place of a program: the rest is compiled, and all is as in eager.

Each program runs eagerly and compiled, in step: results, what it logged, exceptions with the lines
of their tracebacks are equal, and operations of it run in graphs.
"""

import asyncio
import io
import linecache
import textwrap
import traceback
import warnings
import weakref

import pytest
import torch

import magpy

#: In `$R` a file in memory is read: nobody knows what its C methods do.  It gives 2.
REFUSED = 'len(buffer(b"ab").read())'

PROGRAMS = {
    "in_the_middle": """
        h = before(x)
        log.append($R)
        return after(h)
    """,
    "first": """
        n = $R
        return after(before(x) * n)
    """,
    "last": """
        h = after(before(x))
        log.append($R)
        return h
    """,
    "in_an_expression": "return after(before(x) + $R) * 3",
    "as_an_argument": "return torch.add(before(x), after(x), alpha=$R)",
    "as_an_index": "return after(before(x))[:$R]",
    "in_a_display": "return {'y': after(before(x)), 'n': $R, 'more': [(h := before(x)).sum(), h]}",
    "in_an_f_string": """
        h = before(x)
        log.append(f"{x.shape[0]}: {len(buffer(b'ab').read()):>4}")
        return after(h)
    """,
    "in_a_condition": """
        h = before(x)
        if $R > 1:
            h = h * 2
        else:
            h = h - 1
        return after(h)
    """,
    "in_a_condition_that_does_not_hold": """
        h = before(x)
        if $R > 5:
            h = h * 2
        elif x.shape[0] == 2:
            h = h + 1
        return after(h)
    """,
    "in_a_branch": """
        h = before(x)
        if k % 2:
            log.append($R)
            h = h * 2
        return after(h)
    """,
    "in_the_branch_that_returns": """
        h = before(x)
        if k % 2:
            return h.sum() * $R
        return after(h)
    """,
    "in_both_branches": """
        if k % 2:
            h = before(x) * $R
        else:
            h = before(x) / $R
        return after(h)
    """,
    "in_a_conditional_expression": "return after(before(x) if $R else x)",
    "in_and_or": "return after(before(x)) * ($R and k or 1)",
    "in_a_comparison": "return after(before(x)) * (1 < $R < 3)",
    "in_a_loop": """
        for layer in layers:
            x = layer(x)
            log.append($R)
        return x.relu()
    """,
    "in_the_head_of_a_loop": """
        for i in range($R):
            x = before(x) * (i + 1)
        return after(x)
    """,
    "in_a_loop_that_breaks": """
        for layer in layers:
            x = layer(x)
            if $R > k:
                break
        return after(x)
    """,
    "in_a_loop_that_continues": """
        for i, layer in enumerate(layers):
            if $R == i:
                continue
            x = layer(x)
        else:
            log.append("else")
        return after(x)
    """,
    "in_a_loop_that_returns": """
        for i, layer in enumerate(layers):
            x = layer(x)
            if $R == i:
                return x.sum()
        return after(x)
    """,
    "in_the_else_of_a_loop": """
        for layer in layers:
            x = layer(x)
        else:
            log.append($R)
        return after(x)
    """,
    "in_a_nested_loop": """
        for layer in layers:
            for _ in range(2):
                x = layer(x).tanh()
                log.append($R)
        return after(x)
    """,
    "in_the_head_of_while": """
        n = 0
        while n < $R:
            x = before(x)
            n += 1
        return after(x)
    """,
    "in_while": """
        n = 0
        while n < 2:
            x = before(x)
            n += $R // 2
        return after(x)
    """,
    "in_a_comprehension": "return after(before(x)) * sum([$R for _ in range(2)])",
    "in_a_generator_expression": "return after(before(x)) * sum($R for _ in range(2))",
    "in_a_dict_comprehension": "return {i: after(before(x)) * $R for i in range(2)}",
    "in_a_lambda": """
        f = lambda h: h * $R
        return after(f(before(x)))
    """,
    "in_with": """
        with torch.no_grad():
            h = before(x)
            log.append($R)
            return after(h)
    """,
    "in_the_head_of_with": """
        with torch.set_grad_enabled($R > 5):
            h = before(x)
        return after(h)
    """,
    "in_two_withs": """
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            h = before(x) * $R
        return after(h)
    """,
    "in_a_manager_of_the_programs": """
        with Manager(log) as m:
            h = before(x)
            m.append($R)
        return after(h)
    """,
    "in_try": """
        try:
            h = before(x)
            log.append($R)
        except ValueError:
            h = x
        return after(h)
    """,
    "before_what_raises": """
        h = before(x)
        try:
            log.append($R)
            raise KeyError(k)
        except KeyError as e:
            log.append(str(e))
        return after(h)
    """,
    "in_except": """
        h = before(x)
        try:
            {}[k]
        except KeyError as e:
            log.append((str(e), $R))
            h = h * 2
        return after(h)
    """,
    "in_else": """
        try:
            h = before(x)
        except ValueError:
            h = x
        else:
            log.append($R)
            h = h + 1
        return after(h)
    """,
    "in_finally": """
        try:
            h = before(x)
            return after(h)
        finally:
            log.append($R)
    """,
    "in_finally_of_what_raises": """
        try:
            h = before(x)
            raise ValueError(k)
        finally:
            log.append($R)
            after(x)
    """,
    "an_exception_after": """
        h = before(x)
        log.append($R)
        h = after(h)
        raise ValueError(f"no {k}")
    """,
    "an_exception_of_torch": """
        h = before(x)
        log.append($R)
        h = h * 2
        return h @ h
    """,
    "an_exception_below": """
        h = before(x)
        log.append($R)
        return fails(after(h), k)
    """,
    "in_match": """
        h = before(x)
        match k % 3:
            case 0:
                log.append($R)
                h = h * 2
            case n if n > $R - 2:
                h = h + n
            case _:
                h = h - 1
        return after(h)
    """,
    "in_the_subject_of_match": """
        h = before(x)
        match $R:
            case 2:
                h = h * 2
        return after(h)
    """,
    "in_an_assert": """
        h = before(x)
        assert $R == 2, "no"
        return after(h)
    """,
    "in_an_assert_that_fails": """
        h = before(x)
        assert $R == 3, f"not {k}"
        return after(h)
    """,
    "in_an_augmented_assignment": """
        h = before(x)
        n = 1
        n += $R
        h *= n
        return after(h)
    """,
    "in_an_item_that_is_stored": """
        found = {}
        found[$R] = before(x)
        return after(found[2])
    """,
    "in_an_unpacking": """
        n, *rest = $R, before(x), after(x)
        return rest[0] * n + rest[1]
    """,
    "in_a_walrus": """
        h = before(x)
        if (n := $R) > 1:
            h = h * n
        return after(h) + n
    """,
    "with_a_local_that_is_deleted": """
        h = before(x)
        n = $R
        del x
        h = after(h) * n
        del n
        return h
    """,
    "with_an_unbound_local": """
        h = before(x)
        if k > 100:
            n = 1
        log.append($R)
        h = after(h)
        return h * n
    """,
    "in_a_function": """
        def inner(h):
            log.append($R)
            return after(h)
        return inner(before(x)).relu()
    """,
    "in_a_closure_that_counts": """
        n = 0
        def inner(h):
            nonlocal n
            n += $R
            return h * n
        return after(inner(before(x))), n
    """,
    "one_call_deep": "return after(helper(before(x), log)).relu()",
    "two_calls_deep": "return after(deeper(before(x), log)).relu()",
    "in_a_method": "return after(Thing(before(x)).scaled(log)).relu()",
    "in_a_property": "return after(Thing(before(x)).seen).relu()",
    "in_a_class_method": "return after(Thing.made(before(x), log).h).relu()",
    "in_a_module": "return after(module(before(x))).relu()",
    "in_a_module_in_modules": "return after(deep_module(before(x))).relu()",
    "in_a_callback": "return after(sum(map(lambda h: h * $R, [before(x), x]))).relu()",
    "in_the_key_of_sorted": "return after(before(x)), sorted([3, 1, 2], key=lambda n: -n * $R)",
    "in_a_generator": "return [after(h) for h in generated(before(x), log)]",
    "after_a_yield": "return sum(after(h) for h in generated(before(x), log))",
    "in_recursion": "return after(recursive(before(x), 3, log))",
    "with_keywords": "return after(before(x), **{}) * dict(n=$R)['n']",
    "with_stars": "return torch.stack([*[before(x)] * $R, after(x)])",
    "with_gradients": """
        h = before(x.clone().requires_grad_())
        n = $R
        loss = (after(h) * n).sum()
        loss.backward()
        grads = [p.grad.clone() for p in before.parameters()]
        before.zero_grad()
        after.zero_grad()
        return loss.detach(), grads
    """,
    "in_place": """
        h = before(x)
        h.add_($R)
        h[0] = k
        return after(h)
    """,
    "with_random_numbers": """
        h = before(x) + torch.rand(2, 4)
        log.append($R)
        return after(h) * torch.rand(1)
    """,
}

WORLD = """
buffer = io.BytesIO

def fails(h, k):
    h = h * 2
    raise RuntimeError(f"{k} failed")

def helper(h, log):
    h = h * 2
    log.append($R)
    return h + 1

def deeper(h, log):
    h = helper(h - 1, log)
    return h / 2

def generated(h, log):
    for i in range(3):
        yield h * i
        log.append($R)
        h = h + 1

def recursive(h, n, log):
    if n == 0:
        log.append($R)
        return h
    h = h * 2
    return recursive(h, n - 1, log) + 1

class Manager:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return self.log
    def __exit__(self, *error):
        self.log.append("out")

class Thing:
    def __init__(self, h):
        self.h = h
    def scaled(self, log):
        h = self.h * 2
        log.append($R)
        return h + 1
    @property
    def seen(self):
        return self.h * $R
    @classmethod
    def made(cls, h, log):
        log.append($R)
        return cls(h * 2)

class Middle(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.seen = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), 0
    def forward(self, h):
        h = self.one(h)
        self.seen += $R
        return self.two(h)
"""


def made(name, seed=0):
    """The function of a program, in a world of its own."""
    torch.manual_seed(seed)
    world = {"torch": torch, "io": io, "__name__": "places"}
    run(WORLD, f"<world of {name}>", world)
    world |= {"before": stack(), "after": stack(), "layers": torch.nn.ModuleList(stack(3))}
    world["module"] = world["Middle"]()
    world["deep_module"] = torch.nn.Sequential(torch.nn.Linear(4, 4), world["Middle"]())
    body = textwrap.indent(textwrap.dedent(PROGRAMS[name]).strip(), "    ")
    run(f"def program(x, k, log):\n{body}\n", f"<program {name}>", world)
    return world["program"]


def stack(n=2):
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(n)))


def run(text, file, world):
    text = text.replace("$R", REFUSED)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), world)


def outcome(f, *args):
    """What a call gives or raises, and the lines that the exception has passed."""
    torch.manual_seed(7)
    try:
        return "returned", f(*args), torch.rand(1)
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        places = [(s.filename, s.name, s.lineno) for s in frames if s.filename.startswith("<")]
        return "raised", type(e), str(e), places, torch.rand(1)


def picture(v):
    """A value by what it holds, to the last bit."""
    if isinstance(v, torch.Tensor):
        return "tensor", v.requires_grad, v.is_leaf, v.stride(), v.detach().tolist()
    if isinstance(v, (tuple, list)):
        return type(v), [picture(x) for x in v]
    return {k: picture(x) for k, x in v.items()} if isinstance(v, dict) else v


@pytest.fixture(autouse=True)
def in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def test_there_is_a_program_for_each_place():
    assert len(PROGRAMS) >= 60


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_rest_is_compiled(name):
    eager, function = made(name), made(name)
    compiled = magpy.compile(function, backend="eager")
    logs = [], []
    for k in range(10):
        x = torch.full((2, 4), k / 7)
        expected, result = outcome(eager, x.clone(), k, logs[0]), outcome(compiled, x, k, logs[1])
        assert picture(result) == picture(expected)
        assert logs[0] == logs[1]
    stats = magpy.stats(compiled)
    assert stats.regions > 0
    assert stats.in_python
    assert stats.captures <= 12


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_a_coroutine_and_an_asynchronous_generator():
    world = {"torch": torch, "io": io, "__name__": "places", "w": stack()}
    text = """
    buffer = io.BytesIO
    async def items(x):
        for i in range(3):
            y = w(x) * i
            yield y
            x = x + $R
    async def program(x, log):
        h = w(x)
        log.append($R)
        async for y in items(h):
            h = w(h + y)
        return h
    """
    run(textwrap.dedent(text), "<asynchronous>", world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.MagpyWarning)
        compiled = magpy.compile(world["program"], backend="eager")
        logs = [], []
        for k in range(6):
            x = torch.full((2, 4), k / 7)
            expected = asyncio.run(world["program"](x, logs[0]))
            assert torch.equal(asyncio.run(compiled(x, logs[1])), expected)
            assert logs[0] == logs[1]
    assert magpy.stats(compiled).regions > 0


def test_what_locals_gives():
    def f(x, buffer=io.BytesIO):
        first = locals()
        first["kept"] = 1  # in CPython 3.11 and 3.12 one dict serves the frame
        h = x * 2 + len(buffer(b"ab").read())
        second = locals()
        return h, list(first), sorted(second), first is second

    compiled = magpy.compile(f, backend="eager")
    for i in range(5):
        h, *rest = compiled(torch.ones(2) * i)
        wanted, *expected = f(torch.ones(2) * i)
        assert torch.equal(h, wanted) and rest == expected
    assert magpy.stats(compiled).regions


def test_another_function_may_be_named_locals():
    def f(x, locals=lambda: {"x": 1, "other": 2}):  # noqa: A002
        h = x * len(io.BytesIO(b"ab").read())
        return h + 1, locals()

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        assert compiled(torch.ones(()) * i) == (2.0 * i + 1, {"x": 1, "other": 2})
    assert magpy.stats(compiled).regions


def test_what_a_frame_hands_out_while_it_waits_may_die():
    def changed(x):
        return x * len(io.BytesIO(b"ab").read())

    def loader(x):
        for i in range(2):
            yield x * i
            yield changed(x + i)

    async def consume(t, gone):
        ref = weakref.ref(t)
        del t
        await asyncio.sleep(0)
        gone.append(ref() is None)

    async def sends(x, gone):
        await consume(x + 1, gone)
        await consume(changed(x), gone)

    generate, send = (magpy.compile(f, backend="eager") for f in (loader, sends))
    for i in range(8):
        gone = []
        for v in generate(torch.ones(2) * i):
            ref = weakref.ref(v)
            del v
            gone.append(ref() is None)
        asyncio.run(send(torch.ones(2) * i, gone))
        assert gone == [True] * 6
    assert magpy.stats(generate).regions and magpy.stats(send).regions
