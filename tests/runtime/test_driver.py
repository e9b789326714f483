"""Callables that cannot be captured whole, compiled around the lines that were refused."""

import asyncio
import functools
import os
import queue
import threading
import types
import warnings
import zlib

import pytest
import torch

import magpy
from magpy import errors


@pytest.fixture(autouse=True)
def in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Counts:
    """A backend that counts the operations that its graphs run."""

    def __init__(self):
        self.ran = 0

    def __call__(self, gm, example_inputs):
        operations = sum(n.op.startswith("call") for n in gm.graph.nodes)

        def run(*args):
            self.ran += operations
            return gm(*args)

        return run


def layers(n=4):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(n))).eval()


def check(make, calls, least, state=lambda: None):
    """Runs a function and its compiled twin in step; `least` operations run in graphs at the end.

    Args:
        make: makes the function and what tells of its state.
        calls: the arguments of each call.
        least: operations in graphs in the last call.
    """
    eager, eager_state = make()
    function, own_state = make()
    backend = Counts()
    compiled = magpy.compile(function, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.MagpyWarning)
        for args in calls:
            before = backend.ran
            expected, result = eager(*args), compiled(*args)
            torch.testing.assert_close(result, expected, rtol=0, atol=0)
            assert own_state() == eager_state()
    assert backend.ran - before >= least
    return compiled


def inputs(n=8):
    torch.manual_seed(1)
    return [torch.randn(2, 4) for _ in range(n)]


def test_a_line_in_the_middle():
    def make():
        before, after, local = layers(), layers(), threading.local()
        local.served = 0

        def handler(x):
            h = before(x)
            local.served += 1
            return after(h) * local.served

        return handler, lambda: local.served

    check(make, [(x,) for x in inputs()], 8)


def test_a_call_within_an_expression():
    def make():
        before, after, source = layers(), layers(), (i for i in range(100))

        def handler(x):
            return after(before(x) + next(source))

        return handler, lambda: None

    check(make, [(x,) for x in inputs()], 8)


def test_a_line_in_a_loop_within_a_context():
    def make():
        model, features = layers(1), queue.Queue()

        def handler(x):
            with torch.no_grad():
                for _ in range(3):
                    x = model(x).relu()
                    features.put(x.shape[0])
            return x.sum(0)

        return handler, features.qsize

    check(make, [(x,) for x in inputs()], 7)


def test_a_module_three_calls_deep():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.served = layers(), queue.Queue()

        def forward(self, x):
            h = self.inner(x)
            self.served.put(1)
            return self.inner(h)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.odd, self.head = Odd(), layers()

        def forward(self, x):
            return self.head(self.odd(x)).softmax(-1)

    def make():
        torch.manual_seed(0)
        model = Outer()

        def handler(x):
            return model(x).detach() * 2

        return handler, lambda: model.odd.served.qsize()

    check(make, [(x,) for x in inputs()], 13)


def test_a_value_that_differs_in_every_call():
    def make():
        before, after = layers(), layers()

        def handler(x, payload):
            h = before(x)
            size = len(zlib.compress(payload))
            return {"scores": after(h), "size": size}

        return handler, lambda: None

    check(make, [(x, bytes([i]) * (9 * i)) for i, x in enumerate(inputs(14))], 8)


def test_exceptions_and_early_returns():
    def make():
        before, after, seen = layers(), layers(), queue.Queue()

        def handler(x, way):
            h = before(x)
            if way == 1:
                return h.sum()
            seen.put(way)
            try:
                y = after(h)
                if way == 2:
                    raise ValueError(way)
            except ValueError:
                return h - 1
            return y + 1

        return handler, seen.qsize

    check(make, [(x, i % 3) for i, x in enumerate(inputs(15))], 4)


def test_an_exception_of_a_region_is_the_programs():
    seen = queue.Queue()

    def handler(x, n):
        seen.put(n)
        y = x * 2
        return y.view(n, 3)

    compiled = magpy.compile(handler, backend="eager")
    x = torch.randn(2, 3)
    for _ in range(4):
        compiled(x, 2)
    with pytest.raises(RuntimeError, match="shape") as raised:
        compiled(x, 5)
    with pytest.raises(RuntimeError, match="shape") as expected:
        handler(x, 5)
    assert str(raised.value) == str(expected.value)
    assert raised.traceback[-1].lineno == expected.traceback[-1].lineno


def test_an_exception_that_a_region_raises_is_the_programs():
    def handler(x):
        open(os.devnull).close()
        y = x * 2
        if y.dim() == 2:
            raise ValueError("matrix")
        return y

    compiled = magpy.compile(handler, backend="eager")
    x = torch.randn(2, 3)
    for _ in range(5):
        with pytest.raises(ValueError, match="matrix") as raised:
            compiled(x)
        lines = [(e.name, e.lineno) for e in raised.traceback[1:]]
        assert lines == [("handler", handler.__code__.co_firstlineno + 3)]
    stats = magpy.stats(compiled)
    assert "open is called" in stats.reasons[0]
    assert any("the call raised ValueError" in reason for reason in stats.reasons)


def test_functions_of_one_code_have_their_own_cells_and_defaults():
    seen = queue.SimpleQueue()

    def handler(x):
        scale = x * 2

        def inner(y, k=x + 1):
            z = y * scale
            seen.put(None)
            return z * k

        return inner(x)

    compiled = magpy.compile(handler, backend="eager")
    for i in range(6):
        x = torch.full((2,), float(i % 2), requires_grad=True)
        own = x.detach().clone().requires_grad_()
        handler(x).sum().backward()
        compiled(own).sum().backward()
        assert torch.equal(own.grad, x.grad)
    assert compiled._magpy_driver is not None


OUTSIDE = queue.SimpleQueue()


def changed_defaults(f):
    f.__defaults__ = (7,)


def changed_keyword_defaults(f):
    f.__kwdefaults__ = {"m": 7}


def changed_code(f):
    def other(x, k=2, *, m=1):
        return x - k

    f.__code__ = other.__code__


@pytest.mark.parametrize("change", [changed_defaults, changed_keyword_defaults, changed_code])
@pytest.mark.parametrize("within", [False, True], ids=["itself", "called"])
def test_a_function_is_given_other_defaults_or_code(change, within):
    def make():
        def scaled(x, k=2, *, m=1):
            y = x * k
            OUTSIDE.put(None)
            return y * m + 1

        def calls(x):
            return scaled(x + 1)

        return scaled, calls if within else scaled

    (inner, function), (own, wrapped) = make(), make()
    compiled = magpy.compile(wrapped, backend="eager")
    x = torch.ones(2)
    for i in range(10):
        if i == 5:
            assert compiled._magpy_driver is not None
            change(inner)
            change(own)
        assert torch.equal(compiled(x), function(x))


def test_an_object_whose_call_is_a_static_method():
    class Scaled:
        @staticmethod
        def __call__(x):
            y = x * 2
            OUTSIDE.put(1)
            return y + 1

    scaled = Scaled()

    def calls(x):
        return scaled(x + 1)

    compiled, itself = (magpy.compile(f, backend="eager") for f in (calls, scaled))
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(compiled(x), calls(x))
        assert torch.equal(itself(x), scaled(x))


def test_gradients_flow_through_regions():
    model, seen = layers(), queue.Queue()

    def step(x):
        h = model(x)
        seen.put(1)
        return model(h).sum()

    compiled = magpy.compile(step, backend="aot_eager")
    for x in inputs(4):
        model.zero_grad()
        step(x).backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        compiled(x).backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_a_coroutine_function():
    def make():
        before, after = layers(), layers()

        async def handler(x):
            h = before(x)
            await asyncio.sleep(0)
            return after(h)

        return (lambda f: f)(handler), lambda: None

    function, _ = make()
    other, _ = make()
    backend = Counts()
    compiled = magpy.compile(other, backend=backend)
    for x in inputs(4):
        ran = backend.ran
        torch.testing.assert_close(asyncio.run(compiled(x)), asyncio.run(function(x)))
    assert backend.ran - ran == 8


def test_a_generator_function():
    model = layers()

    def stream(x, steps):
        for _ in range(steps):
            x = model(x).tanh()
            yield x

    backend = Counts()
    compiled = magpy.compile(stream, backend=backend)
    for x in inputs(4):
        ran = backend.ran
        torch.testing.assert_close(list(compiled(x, 3)), list(stream(x, 3)))
    assert backend.ran - ran == 15


def test_fullgraph_still_refuses():
    local = threading.local()
    local.served = 0

    def handler(x):
        local.served += 1
        return x + 1

    with pytest.raises(magpy.CaptureError):
        magpy.compile(handler, backend="eager", fullgraph=True)(torch.ones(2))


def test_a_module_with_a_hook_runs_as_it_is():
    model, seen, heard = layers(), queue.Queue(), []

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            h = self.inner(x)
            seen.put(1)
            return self.inner(h)

    outer = Outer()
    compiled = magpy.compile(outer, backend="eager")
    for x in inputs(4):
        torch.testing.assert_close(compiled(x), outer(x))
    outer.register_forward_hook(lambda *a: heard.append(1))
    compiled(inputs()[0])
    assert heard == [1]


def test_what_a_region_reads_is_guarded():
    class Settings:
        scale = 2.0

    def make():
        settings, local = Settings(), threading.local()

        def handler(x):
            local.served = 1
            return x * settings.scale + len(vars(settings))

        return settings, handler

    settings, handler = make()
    compiled = magpy.compile(handler, backend="eager")
    changes = {
        5: lambda: setattr(settings, "scale", 3.0),
        7: lambda: setattr(Settings, "scale", 9.0),
        8: lambda: delattr(settings, "scale"),
        10: lambda: setattr(settings, "other", 1),
    }
    for i in range(12):
        changes.get(i, lambda: None)()
        x = torch.full((2,), float(i))
        torch.testing.assert_close(compiled(x), handler(x), rtol=0, atol=0)


def test_a_refusal_is_made_while_a_frame_has_not_begun(monkeypatch):
    caller = object()
    begun = types.SimpleNamespace(
        f_code=inputs.__code__, f_lineno=1, f_globals={}, f_lasti=-1, f_back=caller
    )
    monkeypatch.setattr(errors.sys, "_getframe", lambda depth: begun)
    monkeypatch.setattr(errors._interp, "is_caller", lambda frame: frame is caller)
    assert [s.key[2] for s in errors.Refusal("why").frames] == ["inputs"]


def test_a_refusal_after_the_call_is_in_none_of_the_frames_around_it():
    assert errors.Refusal("why").frames == []


def test_a_line_that_fills_a_cache_with_several_things_does_not_split_the_call():
    filled = []

    @functools.lru_cache
    def scale(kind):
        filled.append(kind)
        return len(kind)

    def f(x):
        return x * scale(("a", "bb", "ccc")[x.dim()]) + 1

    c = magpy.compile(f, backend="eager")
    for x in (torch.ones(()), torch.ones(2), torch.ones(2, 2)) * 4:
        assert torch.equal(c(x), x * (x.dim() + 1) + 1)
    stats = magpy.stats(c)
    assert stats.in_python == []
    # Three calls fill the cache, and one waits for others that show that these come again.
    assert (stats.captures, stats.eager_calls) == (3, 4)


class Experts(torch.nn.Module):
    """The loop over experts of Mixtral: which rows an expert has is data."""

    def __init__(self, n=4):
        super().__init__()
        torch.manual_seed(0)
        self.gate = torch.nn.Linear(4, n)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(n))

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.where(chosen == i)[0]
            if rows.numel() > 0:
                out.index_add_(0, rows, expert(x[rows]))
        return out


# A compiler cannot have the operation whose size is data, so there it is cut, too.
@pytest.mark.parametrize(("backend", "most"), [("eager", 10), (Counts(), 14)])
@pytest.mark.parametrize("size", [3, 8])
def test_a_loop_over_experts_is_not_captured_for_each_choice(size, backend, most):
    eager = Experts()
    compiled = magpy.compile(Experts(), backend=backend)
    with torch.no_grad():
        for i in range(30):
            torch.manual_seed(i)
            x = torch.randn(size, 4)
            assert torch.equal(compiled(x), eager(x))
    stats = magpy.stats(compiled)
    assert stats.captures <= most
    assert stats.eager_calls <= 1
    assert stats.hits >= 20


def test_a_mask_with_none_one_or_many_hits_is_served():
    tower = layers()

    def make():
        def detections(x, threshold):
            h = tower(x)
            found = h[h[:, 0] > threshold]
            if len(found) == 0:
                return None
            return tower(found), len(found)

        return detections, lambda: None

    calls = [
        (
            torch.randn(6, 4, generator=torch.Generator().manual_seed(i)),
            (3.0, 0.0, 0.3, -2.0)[i % 4],
        )
        for i in range(20)
    ]
    with torch.no_grad():
        compiled = check(make, calls, least=7)
    stats = magpy.stats(compiled)
    assert stats.captures <= 8
    assert stats.hits >= 10


def test_a_region_that_computed_nothing_once_is_compiled_where_it_goes_another_way():
    tower, many = layers(), []

    def make():
        pending = queue.Queue()

        def step(x, wanted):
            pending.put(1)
            pending.get()
            if wanted is None:
                return None
            return tower(x * wanted)

        return step, lambda: len(many)

    calls = [(x, None if i < 2 else 1.0 + i) for i, x in enumerate(inputs(10))]
    check(make, calls, least=4)


def test_what_is_around_nested_tensors_is_compiled():
    before, after = layers(), layers()

    def make():
        def handler(rows):
            x = torch.nested.nested_tensor(rows, layout=torch.jagged)
            y = before(x.values())
            h = torch.nested.nested_tensor_from_jagged(y, x.offsets())
            return after(torch.stack([part.mean(0) for part in h.unbind()]))

        return handler, lambda: None

    calls = [([torch.randn(2 + i % 3, 4), torch.randn(4 + i % 2, 4)],) for i in range(14)]
    with torch.no_grad():
        compiled = check(make, calls, least=8)
    assert magpy.stats(compiled).captures <= 10
