"""What was compiled can be collected, and calls and captures leave nothing behind."""

import gc
import io
import linecache
import sys
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy

X = torch.ones(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.names = ["x", "y"]

    def forward(self, x):
        out = {}
        for name in self.names:
            x = torch.relu(self.a(x)) + self.b(x)
            out[name] = x
        return out


def resident_bytes():
    """Memory of the process that is in use now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def objects():
    linecache.clearcache()  # torch.fx puts the code of each graph there
    gc.collect()
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
def test_thousand_captures_and_resets_leave_memory_and_objects():
    net = Net().eval()
    compiled = magpy.compile(net, backend="eager")

    def captures(n):
        for _ in range(n):
            magpy.reset()
            compiled(X)
            compiled(X)
        magpy.reset()

    captures(150)  # caches fill, the allocator settles
    before, memory = objects(), resident_bytes()
    captures(1000)
    assert objects() <= before + 100
    assert resident_bytes() <= memory * 1.02 + 4 * 2**20


def test_dropped_compiled_module_is_collected():
    net = Net().eval()
    compiled = magpy.compile(net, backend="eager")
    compiled(X)
    compiled(X)
    refs = [weakref.ref(net), weakref.ref(net.a.weight), weakref.ref(compiled)]
    del net, compiled
    gc.collect()
    gc.collect()
    assert [r() is None for r in refs] == [True] * len(refs)


def test_dropped_compiled_function_and_its_closure_are_collected():
    class Thing:
        k = 3.0

    def make():
        thing = Thing()
        return magpy.compile(lambda x: x * thing.k, backend="eager"), weakref.ref(thing)

    compiled, ref = make()
    compiled(X)
    compiled(X)
    assert ref() is not None
    del compiled
    gc.collect()
    gc.collect()
    assert ref() is None


def test_arguments_of_a_capture_are_not_kept():
    compiled = magpy.compile(lambda x, d: x * d["k"], backend="eager")
    x = torch.ones(1000)
    big = torch.ones(1000)
    d = {"k": big}
    ref, ref_big = weakref.ref(x), weakref.ref(big)
    compiled(x, d)
    compiled(x, d)
    del x, d, big
    gc.collect()
    assert ref() is None
    assert ref_big() is None


def test_intermediate_values_die_during_capture_as_in_eager():
    class Noted:
        def __init__(self, log):
            self.log = log

        def __del__(self):
            self.log.append("gone")

    def f(x, log):
        n = Noted(log)
        del n
        log.append("after")
        return x + 1

    want, got = [], []
    f(X, want)
    magpy.compile(f, backend="eager")(X, got)
    assert got == want == ["gone", "after"]


@pytest.mark.slow
def test_hundred_thousand_calls_do_not_grow():
    net = nn.Linear(4, 4)
    compiled = magpy.compile(lambda x: {"y": net(x), "n": [1, 2]}, backend="eager")
    with torch.no_grad():
        for _ in range(2000):
            compiled(X)
        before, memory = objects(), resident_bytes()
        for _ in range(100_000):
            compiled(X)
        assert objects() <= before + 50
        assert resident_bytes() <= memory * 1.02 + 2 * 2**20
    assert magpy.stats(compiled).hits > 100_000


def test_refused_program_does_not_keep_its_values():
    class Big:
        pass

    def f(x, big):
        big.mark = object()
        raise ValueError("no")

    compiled = magpy.compile(f, backend="eager")
    big = Big()
    ref = weakref.ref(big)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            with pytest.raises(ValueError, match="no"):
                compiled(X, big)
    del big
    gc.collect()
    assert ref() is None


def _raising(kind):
    def missing(x, y):
        return x, y

    def deep(x):
        def inner():
            raise ValueError(x.shape)

        return inner()

    def by_data(x):
        return x[7]

    return {"missing": missing, "deep": deep, "by_data": by_data}[kind]


@pytest.mark.parametrize("kind", ["missing", "deep", "by_data"])
def test_an_exception_keeps_what_eagers_keeps_and_shows_the_same_frames(kind):
    f = _raising(kind)

    def attempt(target):
        x = torch.ones(2)
        alive = weakref.ref(x)
        try:
            target(x)
        except Exception as error:
            frames, text = [], str(error)
            tb = error.__traceback__
            while tb is not None:
                frames.append((tb.tb_frame.f_code.co_name, tb.tb_lineno - tb.tb_frame.f_lineno))
                tb = tb.tb_next
        x = error = tb = None
        return alive() is None, [name for name, _ in frames], type(error), text

    compiled = magpy.compile(f, backend="eager")
    gc.collect()
    gc.disable()
    try:
        wanted = attempt(f)
        assert wanted[0]
        for _ in range(4):
            assert attempt(compiled) == wanted
    finally:
        gc.enable()
    assert magpy.stats(compiled).hits + magpy.stats(compiled).misses == 4


def test_a_capture_with_numbers_that_vary_keeps_no_argument():
    def f(x, n):
        return x * n

    # torch imports much when the first number varies, and that keeps frames.
    first = magpy.compile(lambda x, n: x + n, backend="eager")
    first(X, 2), first(X, 3)
    compiled = magpy.compile(f, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for n in range(2, 5):
            x = torch.ones(2)
            alive = weakref.ref(x)
            compiled(x, n)
            del x
            assert alive() is None
    finally:
        gc.enable()
    assert magpy.stats(compiled).captures == 2


@pytest.mark.parametrize("by_data", [False, True])
def test_an_entry_for_sizes_that_vary_keeps_no_argument(by_data):
    def f(x):
        return (x[x[:, 0] > 0] if by_data else x).sum() * x.shape[0]

    first = magpy.compile(lambda x: x + 1, backend="eager")
    first(torch.ones(2, 4)), first(torch.ones(3, 4))  # imports, as above
    compiled = magpy.compile(f, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 4)
        alive = weakref.ref(x)
        compiled(x)
        del x
        gc.collect()
        assert alive() is None
    assert magpy.stats(compiled).hits == 1


COUNTS = np.zeros(2)


def _changes_an_array(x):
    COUNTS[0] += 1
    return x * 2


def _calls_what_is_refused(x):
    y = x * 2
    torch.empty(0).set_(y)
    return y + 1


def _looks_at_a_frame(x):
    y = x * 2
    sys._getframe(1)
    return y + 1


def _raises(x):
    y = x * 2
    COUNTS[0] += 1
    raise ValueError(str(y.shape))


LEAF = torch.ones(2, requires_grad=True)


def _cannot_be_an_entry(x):
    x.sum().backward()
    return x.detach() + 1 if LEAF.grad.sum() > 0 else x.detach()


def _cannot_be_an_entry_and_raises(x):
    raise ValueError(str(_cannot_be_an_entry(x)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        _changes_an_array,
        _calls_what_is_refused,
        _looks_at_a_frame,
        _raises,
        _cannot_be_an_entry,
        _cannot_be_an_entry_and_raises,
    ],
)
def test_a_refused_call_keeps_nothing_until_the_collector_comes(program):
    def called():
        compiled = magpy.compile(program, backend="eager")
        x = LEAF * 1
        alive = [weakref.ref(x)]
        try:
            result = compiled(x)
            alive.append(weakref.ref(result))
        except ValueError:
            pass
        assert magpy.stats(compiled).reasons
        return alive

    gc.collect()
    gc.disable()
    try:
        called()  # torch's imports
        gc.collect()
        alive = called()
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()


NOTES = []


def _same(given, t):
    return t * len(given)


class _Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, t):
        return _same(given, t)

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


def _checkpoints(x):
    NOTES.append(1)
    return checkpoint(_same, [x * 2], x, use_reentrant=False).detach() + 1


def _applies(x):
    NOTES.append(1)
    return _Keeps.apply([x * 2], x).detach() + 1


class _Shown:
    def __init__(self, t):
        self.t = t

    def __repr__(self):
        return f"{len(NOTES)} notes"


def _shows(x):
    print(_Shown(x), file=io.StringIO())
    return x.detach() + 1


def _hears(x):
    y = x.detach().requires_grad_()
    y.register_hook(lambda g: g * 2)
    (g,) = torch.autograd.grad((y * x).sum(), y)
    return g + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [_checkpoints, _applies, _shows, _hears])
def test_a_call_keeps_nothing_of_what_runs_below_it_until_the_collector_comes(program):
    def called():
        compiled = magpy.compile(program, backend="eager")
        x = LEAF * 1
        result = compiled(x)
        return [weakref.ref(x), weakref.ref(result)]

    gc.collect()
    gc.disable()
    try:
        called()  # imports, as above
        gc.collect()
        alive = called()
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()


class WithAnOddLine(Net):
    def forward(self, x):
        with open("/dev/null", "w") as f:
            f.write("x")
        return super().forward(x)


def _of_a_local_class(base):
    class Local(base):
        pass

    return Local()


@pytest.mark.parametrize("calls", [1, 2, 6])
@pytest.mark.parametrize("local", [False, True], ids=["", "local"])
@pytest.mark.parametrize("cls", [Net, WithAnOddLine])
def test_models_die_with_what_was_compiled_of_them(cls, local, calls, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)

    def used():
        model = _of_a_local_class(cls) if local else cls()
        compiled = magpy.compile(model, backend="eager")
        for _ in range(calls):
            compiled(X)
        return weakref.ref(model), weakref.ref(type(model))

    dropped = [used() for _ in range(4)]
    gc.collect()
    assert not any(model() is not None for model, _ in dropped)
    magpy.reset()  # what instances of one class share is kept for the next one
    gc.collect()
    assert not local or not any(cls() is not None for _, cls in dropped)
