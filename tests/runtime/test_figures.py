"""`magpy.stats`: the share of operations in graphs, and the figures of a callable in parts."""

import contextlib
import queue
import threading
import time
import warnings

import pytest
import torch

import magpy
from magpy.runtime.figures import NO_OPERATION, sums

X = torch.ones(2, 2)


@pytest.fixture
def in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


@pytest.fixture
def whole(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", False)


@magpy.disable
def opaque(x):
    return (x + 1) * 2


def run(f, *args, calls=12, backend="eager"):
    compiled = magpy.compile(f, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.MagpyWarning)
        for _ in range(calls):
            compiled(*args)
    return magpy.stats(compiled)


def test_a_callable_that_is_captured_whole_is_all_in_graphs():
    def f(x):
        return (x @ x).relu().sum()

    stats = run(f, X)
    assert stats.share == 1.0
    assert (stats.regions, stats.in_python) == (1, [])
    assert (stats.hits, stats.misses, stats.eager_calls) == (11, 1, 0)


def test_before_a_second_call_no_share_is_known():
    assert run(lambda x: x + 1, X, calls=1).share is None
    assert run(lambda x: x + 1, X, calls=2).share == 1.0
    assert run(lambda: 1).share is None


def test_nothing_in_graphs_of_a_callable_that_runs_eagerly(whole):
    stats = run(lambda x: opaque(x), X)
    assert stats.share == 0.0
    assert (stats.regions, stats.hits, stats.eager_calls) == (0, 0, 12)


def test_half_in_graphs(in_part):
    source = queue.Queue()

    def f(x):
        h = x * 2 + 1
        source.put(0)
        return opaque(h)

    stats = run(f, X)
    assert stats.share == 0.5
    assert stats.regions == 1
    assert stats.hits > 5
    assert stats.hits + stats.misses == 12


def test_the_lines_in_python_with_their_reasons(in_part):
    def f(x):
        h = x * 2
        h = opaque(h)
        return h.relu() + 1

    stats = run(f, X)
    line = f.__code__.co_firstlineno + 2
    assert stats.in_python == [(f"{__file__}:{line} (f)", "opaque is called")]
    assert stats.share == 3 / 5
    assert stats.regions == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_refusal_is_the_reason_of_its_line_whatever_came_of_the_rest(order):
    found = [magpy.compile(lambda x: x), magpy.compile(lambda x: x)]
    found[0]._magpy_options.journal.left = {"m.py:3 (f)": "open is called"}
    found[1]._magpy_options.journal.left = {"m.py:3 (f)": NO_OPERATION, "m.py:5 (f)": NO_OPERATION}
    told = dict(sums([found[i] for i in order], [])["in_python"])
    assert told == {"m.py:3 (f)": "open is called", "m.py:5 (f)": NO_OPERATION}


def test_checks_that_python_computes_ahead_of_the_graph_are_not_in_it():
    def f(x):
        if x.sum() > 0:
            return (x * 2).relu()
        return x - 1

    assert run(f, X).share == 0.5  # sum() and > by Python
    assert run(f, -X).share == 1 / 3


def test_checks_that_are_more_work_are_a_graph_of_their_own():
    def f(x):
        if (x - x.mean()).square().mean().sqrt() > 0:
            return (x * 2).relu()
        return x - 1

    stats = run(f, torch.rand(4, 4))
    assert stats.share == 1.0
    assert stats.segments == [2]


def test_an_operation_that_is_done_twice_is_counted_once():
    """Counts are changed at their places, and copies of them ahead of the graphs."""
    a, b, c = counts = [torch.tensor(0.0) for _ in range(3)]

    def f(x):
        y = x.relu()
        for count in counts:
            count.add_(1)
        return y * (1 - 0.5 ** ((a.item() + b.item() + c.item()) / 3))

    compiled = magpy.compile(f, backend="eager")
    for i in range(6):
        assert torch.equal(compiled(X), X * (1 - 0.5 ** (i + 1)))
    info = compiled._magpy_entries[-1].tag
    assert info.repeated == 3  # add() makes the copy and changes it
    assert info.nodes - info.repeated == 5
    assert magpy.stats(compiled).share == 1.0


def test_to_read_a_number_is_no_operation(whole):
    @magpy.disable
    def reads(x):
        return x.sum().item(), bool(x.max() > 0)

    compiled = magpy.compile(lambda x: (reads(x), x.relu())[1], backend="eager")
    with pytest.warns(magpy.MagpyWarning):
        for _ in range(12):
            compiled(X)
    assert magpy.stats(compiled).share == 0.0
    assert compiled._magpy_options.share.one_by_one % 4 == 0


def test_a_graph_that_python_runs_is_not_in_a_graph():
    def fails(gm, inputs):
        raise RuntimeError("no")

    stats = run(lambda x: x.relu() + 1, X, backend=fails)
    assert stats.uncompiled == 1
    assert stats.share == 0.0


def test_a_compiled_graph_counts():
    assert run(lambda x: x.relu() + 1, X, backend="aot_eager").share == 1.0


def test_backward_passes_are_not_counted():
    weight = torch.ones(2, 2, requires_grad=True)

    def f(x):
        loss = (x @ weight).sum()
        loss.backward()
        return loss.detach()

    compiled = magpy.compile(f, backend="aot_eager")
    for _ in range(8):
        compiled(X)
    share = compiled._magpy_options.share
    assert share.in_graphs > 0
    assert share.value == 1.0


def test_calls_that_are_watched_count_nothing():
    def f(x):
        return x + 1

    compiled = magpy.compile(f, backend="eager", dynamic=False)
    for n in range(1, 5):
        compiled(torch.ones(n))
    assert magpy.stats(compiled).share is None
    compiled(torch.ones(4))
    assert magpy.stats(compiled).share == 1.0


def test_only_calls_since_the_last_capture_count(whole):
    flags = {"graph": False}

    def f(x):
        return x + 1 if flags["graph"] else opaque(x)

    compiled = magpy.compile(f, backend="eager")
    compiled(X)
    flags["graph"] = True
    for _ in range(12):
        compiled(X)
    assert magpy.stats(compiled).share == 1.0
    assert magpy.stats(compiled).in_python == []


def test_alternating_calls_are_both_counted():
    def f(x, flag):
        if flag:
            return x + 1
        return torch.split(x[x > 0], 1)[0] * 2

    compiled = magpy.compile(f, backend="eager")
    for i in range(60):
        compiled(X, i % 2 == 0)
    assert 1 / 3 < magpy.stats(compiled).share < 1.0


def test_compiled_callables_within_lines_of_python_count(in_part):
    inner = magpy.compile(lambda x: x.relu() + 1, backend="eager")
    magpy_runs = magpy.disable(lambda x: inner(x))

    stats = run(lambda x: magpy_runs(x), X)
    assert stats.share == 1.0


def test_figures_of_regions_are_sums(in_part):
    def f(x):
        h = x * 2
        h = opaque(h)
        return h.relu() + 1

    compiled = magpy.compile(f, backend="eager")
    for n in (2, 2, 3, 3, 4, 4):
        compiled(torch.ones(n))
    for _ in range(4):
        compiled(torch.ones(4))
    stats = magpy.stats(compiled)
    assert stats.captures == stats.entries == len(stats.segments) == len(stats.choices)
    assert stats.captures >= 4  # two regions, for fixed and for varying sizes
    assert "h.shape[0]" in stats.misses_by
    assert "x.shape[0]" in stats.misses_by
    assert stats.capture_seconds > 0
    assert stats.eager_calls == 1  # the one that was refused
    assert 5 <= stats.hits <= 8


def test_a_callable_of_which_nothing_is_compiled_is_told_once(in_part):
    def f(x):
        with contextlib.nullcontext():
            return opaque(x)

    compiled = magpy.compile(f, backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            compiled(X)
    told = [str(w.message) for w in caught if w.category is magpy.MagpyWarning]
    assert len(told) == 1, told
    assert "opaque is called" in told[0]
    assert magpy.stats(compiled).regions == 0


def test_a_callable_of_which_a_part_is_compiled_is_not_warned_of(in_part):
    def f(x):
        return opaque(x.relu() + 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = magpy.compile(f, backend="eager")
        for _ in range(30):
            compiled(X)
    assert magpy.stats(compiled).regions == 1


def test_a_generator_works_after_the_call(in_part):
    def f(x):
        h = x.relu() + 1
        yield h
        yield h * 2

    compiled = magpy.compile(f, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [compiled(X) for _ in range(8)]
        for generator in made:
            assert len(list(generator)) == 2
    stats = magpy.stats(compiled)
    assert stats.share is None
    assert stats.captures > 0
    assert stats.in_python[0][1] == "it suspends (yield, await)"


def test_counting_shows_the_program_nothing():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    @magpy.disable
    def f(x):
        return x + 1

    compiled = magpy.compile(lambda x: f(x), backend="eager")
    with Mode(), pytest.warns(magpy.MagpyWarning):
        for _ in range(10):
            compiled(X)
    assert len(seen) == 10
    assert magpy.stats(compiled).share == 0.0


def test_an_exception_in_a_counted_call_is_the_programs(whole):
    @magpy.disable
    def f(x):
        raise KeyError(x)

    compiled = magpy.compile(lambda x: f(x), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.MagpyWarning)
        for _ in range(10):
            with pytest.raises(KeyError):
                compiled(1)
    assert magpy.stats(compiled).share is None


def test_threads_count_for_themselves():
    def f(x):
        return x.relu() + 1

    compiled = magpy.compile(f, backend="eager")
    compiled(X)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            torch.ones(3).relu()

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(200):
        compiled(X)
    stop.set()
    thread.join()
    assert magpy.stats(compiled).share == 1.0


def test_reset_forgets_the_share():
    compiled = magpy.compile(lambda x: x.relu() + 1, backend="eager")
    for _ in range(4):
        compiled(X)
    magpy.reset(compiled)
    stats = magpy.stats(compiled)
    assert (stats.share, stats.regions, stats.in_python) == (None, 0, [])
    for _ in range(4):
        compiled(X)
    assert magpy.stats(compiled).share == 1.0


def test_measured_calls_do_not_count():
    compiled = magpy.compile(lambda x: x.relu() + 1, backend="aot_eager", mode="auto")
    for _ in range(200):
        compiled(X)
    stats = magpy.stats(compiled)
    assert stats.pending == 0
    eager = stats.choices[:1] != ["compiled"]
    assert stats.share == (0.0 if eager else 1.0)


def test_what_a_backend_compiles_in_a_later_call_is_counted():
    model = torch.nn.Linear(4, 4)

    def slow(gm, inputs):
        time.sleep(0.05)
        return gm.forward

    compiled = magpy.compile(lambda x: model(x).sum(), backend=slow)
    for _ in range(4):
        compiled(torch.ones(2, 4))
    stats = magpy.stats(compiled)
    assert stats.captures == 1 and stats.hits
    assert stats.compile_seconds >= 0.05
