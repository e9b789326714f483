"""Compiling in another process while calls go on."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn

import magpy
from magpy.api import find
from magpy.backends import process

PATIENCE = 600  # seconds until a test is given up; a compiling process that is starved needs long


def until_taken_up(c, call):
    """Calls until nothing is pending; how many calls that took."""
    n = 0
    end = time.monotonic() + PATIENCE
    while magpy.stats(c).pending:
        assert time.monotonic() < end, "the compiling process does not answer"
        call()
        n += 1
        time.sleep(0.002)
    return n


def pending_of(c):
    return find(c)._magpy_options.waiting.pending


@pytest.fixture
def held(monkeypatch):
    """Graphs are not sent before `release` is called."""
    kept = []
    send = process.submit
    monkeypatch.setattr(process, "submit", kept.append)

    def release():
        monkeypatch.setattr(process, "submit", send)
        for job in kept:
            send(job)

    kept.clear()
    release.kept = kept
    return release


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_the_option_is_checked(value):
    with pytest.raises(magpy.OptionError, match="background must be True or False"):
        magpy.compile(lambda x: x, background=value)


def test_other_backends_compile_in_the_first_call():
    c = magpy.compile(lambda x: x + 1, backend="eager", background=True)
    c(torch.ones(2))
    assert magpy.stats(c).entries == 1
    assert magpy.stats(c).pending == 0


@pytest.mark.slow
def test_calls_run_as_written_until_the_graph_is_there():
    seen = []

    def f(x):
        seen.append("called")
        return torch.relu(x @ x) + torch.rand(2, 2)

    c = magpy.compile(f, background=True)
    x = torch.randn(2, 2)
    torch.manual_seed(7)
    got = [c(x)]
    stats = magpy.stats(c)
    assert (stats.pending, stats.entries, stats.captures) == (1, 0, 1)
    until_taken_up(c, lambda: got.append(c(x)))
    eager_calls = len(got)
    stats = magpy.stats(c)
    assert (stats.pending, stats.entries, stats.hits) == (0, 1, 0)
    assert stats.eager_calls == eager_calls - 1
    assert len(seen) == eager_calls
    # Nobody else drew from the generator while the backend compiled.
    torch.manual_seed(7)
    for value in got:
        assert torch.equal(value, f(x))  # eager's own numbers
    seen.clear()
    c(x)
    assert magpy.stats(c).hits == 1
    assert len(seen) == 1


@pytest.mark.slow
def test_gradients():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    c = magpy.compile(net, background=True)
    x = torch.randn(4, 3)
    want = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    c(x)
    until_taken_up(c, lambda: c(x))
    out = c(x)
    assert magpy.stats(c).hits == 1
    got = torch.autograd.grad(out.sum(), list(net.parameters()))
    torch.testing.assert_close(got, want)


@pytest.mark.slow
def test_several_graphs_and_several_ways():
    def f(x):
        y = torch.sin(x) @ x
        if y.sum() > 0:
            return torch.cos(y) @ y
        return torch.exp(y) - 1

    c = magpy.compile(f, background=True)
    up, down = torch.eye(3), -torch.eye(3) * 0.1 @ torch.diag(torch.tensor([1.0, -1, -1]))
    down = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    for x in (up, down, up, down):
        torch.testing.assert_close(c(x), f(x))
    until_taken_up(c, lambda: (c(up), c(down)))
    hits = magpy.stats(c).hits
    for x in (up, down):
        torch.testing.assert_close(c(x), f(x))
    stats = magpy.stats(c)
    assert (stats.hits, stats.entries, stats.reasons) == (hits + 2, 2, [])


@pytest.mark.slow
def test_a_failure_of_the_backend():
    def f(x):
        return x + 1

    c = magpy.compile(f, background=True, options={"_raise_error_for_testing": True})
    x = torch.ones(2)
    c(x)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        until_taken_up(c, lambda: c(x))
        for _ in range(3):
            assert torch.equal(c(x), x + 1)
    texts = [str(w.message) for w in found if isinstance(w.message, magpy.MagpyWarning)]
    assert len(texts) == 1
    assert "the backend inductor failed" in texts[0]
    stats = magpy.stats(c)
    assert (stats.uncompiled, stats.entries, stats.pending) == (1, 1, 0)
    assert stats.hits >= 3
    d = magpy.compile(
        f, background=True, fullgraph=True, options={"_raise_error_for_testing": True}
    )
    d(x)
    with pytest.raises(Exception, match="AssertionError"):
        until_taken_up(d, lambda: d(x))


def test_what_cannot_travel_is_compiled_here(monkeypatch):
    def unable(*args):
        raise process.Unable("it is of this process")

    monkeypatch.setattr(process, "job", unable)
    c = magpy.compile(lambda x: x * 2, background=True)
    assert torch.equal(c(torch.ones(2)), torch.full((2,), 2.0))
    stats = magpy.stats(c)
    assert (stats.entries, stats.pending) == (1, 0)
    assert stats.reasons == ["not compiled in the background: it is of this process"]


def test_what_cannot_be_described_is_compiled_here(monkeypatch):
    def fails(*args):
        raise NotImplementedError("no metadata")

    monkeypatch.setattr(process, "job", fails)
    c = magpy.compile(lambda x: x * 3, background=True)
    assert torch.equal(c(torch.ones(2)), torch.full((2,), 3.0))
    stats = magpy.stats(c)
    assert (stats.entries, stats.pending) == (1, 0)
    assert "NotImplementedError: no metadata" in stats.reasons[0]


@pytest.mark.slow
def test_settings_of_the_thread_go_along():
    from torch._inductor import config

    seen = []
    load = process._load

    def watched(*args):
        seen.append(config.max_autotune)
        return load(*args)

    with pytest.MonkeyPatch.context() as m, config.patch(max_autotune=True):
        m.setattr(process, "_load", watched)
        c = magpy.compile(lambda x: x * 4, background=True)
        x = torch.ones(2)
        c(x)
        until_taken_up(c, lambda: c(x))
        assert torch.equal(c(x), x * 4)
    assert seen == [True]
    assert magpy.stats(c).reasons == []


@pytest.mark.slow
def test_measured_when_it_is_there():
    c = magpy.compile(lambda x: x.sin() * 5, background=True, mode="auto")
    x = torch.ones(2)
    c(x)
    until_taken_up(c, lambda: torch.testing.assert_close(c(x), x.sin() * 5))
    stats = magpy.stats(c)
    assert stats.captures == 1
    assert find(c)._magpy_plain or stats.choices[0] in ("eager", "compiled")


def test_functions_of_the_program_do_not_travel():
    local = magpy.allow_in_graph(lambda x: x * 3)
    c = magpy.compile(lambda x: local(x) + 1, background=True)
    c(torch.ones(2))
    assert "not compiled in the background" in magpy.stats(c).reasons[0]


def test_reset_forgets_what_is_pending(held):
    c = magpy.compile(lambda x: x + 3, background=True)
    x = torch.ones(2)
    c(x)
    assert magpy.stats(c).pending == 1
    job = weakref.ref(held.kept.pop())
    magpy.reset(c)
    gc.collect()
    assert magpy.stats(c).pending == 0
    assert job() is None, "nobody waits for the result, so nobody has to compute it"
    c(x)
    assert magpy.stats(c).pending == 1


def test_a_callable_dies_while_its_graph_is_compiled(held):
    def f(x):
        return x + 4

    c = magpy.compile(f, background=True)
    c(torch.ones(2))
    job = weakref.ref(held.kept.pop())
    died = weakref.ref(f)
    del c, f
    gc.collect()
    assert died() is None
    assert job() is None


def test_a_pending_entry_holds_no_tensor(held):
    c = magpy.compile(lambda x: x + 5, background=True)
    x = torch.ones(2)
    c(x)
    died = weakref.ref(x)
    del x
    gc.collect()
    assert died() is None
    assert held.kept


def test_limits_count_what_is_pending(held, monkeypatch):
    monkeypatch.setattr(magpy.config, "max_entries", 2)
    c = magpy.compile(lambda x: x + 6, background=True)
    with pytest.warns(magpy.MagpyWarning, match="entries were made"):
        for n in range(1, 5):
            assert c(torch.ones(n)).shape == (n,)
    assert magpy.stats(c).pending == 2


@pytest.mark.slow
def test_threads_call_while_it_compiles():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    c = magpy.compile(net, background=True)
    wrong = []
    done = threading.Event()

    def work(i):
        with torch.no_grad():
            while not done.is_set():
                x = torch.full((2 + i % 2, 4), float(i))
                if not torch.allclose(c(x), net(x)):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    end = time.monotonic() + PATIENCE
    while not magpy.stats(c).hits and time.monotonic() < end:
        time.sleep(0.05)
    done.set()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]
    assert magpy.stats(c).hits


@pytest.mark.slow
def test_the_compiling_process_dies():
    def f(x):
        return x - 1

    c = magpy.compile(f, background=True)
    x = torch.ones(2)
    c(x)
    until_taken_up(c, lambda: c(x))
    killed = process.shared.service.process
    c(torch.ones(3))
    job = pending_of(c)[0].jobs[0]
    killed.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        until_taken_up(c, lambda: c(torch.ones(3)))
    assert job.state in ("failed", "ok")  # it may have answered just before
    assert torch.equal(c(torch.ones(3)), torch.zeros(3))
    d = magpy.compile(lambda x: x - 2, background=True)
    d(x)
    until_taken_up(d, lambda: d(x))
    assert process.shared.service.process is not killed
    assert magpy.stats(d).entries == 1


def run(text, **options):
    path = os.pathsep.join([p for p in sys.path if p] + [os.getcwd()])
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,
    )


START = """
import os, sys, time, torch, magpy
from magpy.backends import process
def f(x):
    return torch.relu(x @ x) + 1
c = magpy.compile(f, background=True)
x = torch.ones(3, 3)
c(x)
"""


@pytest.mark.slow
def test_the_interpreter_exits_while_it_compiles():
    done = run(
        START
        + """
while process.shared.service.process is None:
    time.sleep(0.01)
print(process.shared.service.process.pid)
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.slow
def test_a_fork_while_it_compiles():
    done = run(
        START
        + """
sys.stdout.flush()
pid = os.fork()
who = "child" if pid == 0 else "parent"
n = 0
while magpy.stats(c).pending:
    assert torch.equal(c(x), f(x))
    n += 1
    time.sleep(0.01)
assert magpy.stats(c).entries == 1, magpy.stats(c)
assert torch.equal(c(x), f(x))
print(who, magpy.stats(c).hits, flush=True)
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["child 1", "parent 1"]


def test_a_graph_with_a_backward_pass_can_be_sent():
    """Functions of magpy's, and the marks of nodes, stay with the program's process."""
    from torch._subclasses import FakeTensorMode
    from torch.fx._graph_pickler import GraphPickler, Options

    from magpy.backends import process, worker
    from magpy.models.backward import gradients

    weight = torch.nn.Parameter(torch.ones(3))
    graph = torch.fx.Graph()
    w = graph.placeholder("w")
    loss = graph.call_method("sum", (graph.call_function(torch.mul, (w, 2)),))
    made = graph.call_function(gradients, ((loss,), (w,), None, (None,), False))
    made.meta["magpy_changes"] = loss
    graph.output((made,))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    options = Options(ops_filter=None, node_metadata_key_filter=lambda key: key == worker.TARGET)
    data = GraphPickler.dumps(process._named(module), options)
    sent = GraphPickler.loads(data, FakeTensorMode())
    worker._put_back(sent)
    ((found,),) = sent(weight)
    assert found.tolist() == [2, 2, 2]
    assert weight.grad is None
    assert made.target is gradients
