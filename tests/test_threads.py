"""Threads that compile and call at the same time. A minute of it with --long."""

import gc
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import magpy
from tests.comparison import difference


def together(work, count):
    """Runs `work(i)` in `count` threads; the first exception of any of them."""
    errors = []
    start = threading.Barrier(count)

    def body(i):
        try:
            start.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def same_function(seconds):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = magpy.compile(net, backend="eager")
    wrong = []

    def work(i):
        end = time.monotonic() + seconds
        n = 0
        with torch.no_grad():
            while time.monotonic() < end:
                n += 1
                x = torch.full((1 + (n + i) % 3, 4), float(i + n))
                found = difference(compiled(x), net(x))
                if found:
                    wrong.append(found)

    together(work, 2)
    assert not wrong, wrong[:3]


def own_functions(seconds):
    wrong = []

    def work(i):
        end = time.monotonic() + seconds
        n = 0
        while time.monotonic() < end:
            n += 1
            f = eval(f"lambda x, log: (log.append({n}), x * {n} + {i})[1]")
            compiled = magpy.compile(f, backend="eager")
            log = []
            for k in range(3):
                x = torch.ones(3) * k
                found = difference(compiled(x, log), x * n + i)
                if found:
                    wrong.append(found)
            if log != [n] * 3:
                wrong.append(f"log {log}")
            if n % 50 == 0:
                time.sleep(0)

    together(work, 2)
    assert not wrong, wrong[:3]


def modes_and_sizes(rounds):
    """Captures of several sizes under autocast, whose memory of weights all threads share."""
    torch.manual_seed(0)
    wrong = []

    def work(i):
        for n in range(rounds):
            x = torch.full((1 + (n + i) % 5, 4), float(i + n))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=(n + i) % 2 > 0):
                found = difference(compiled(x), net(x))
            if found:
                wrong.append(found)

    for _ in range(4):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        compiled = magpy.compile(net, backend="eager")
        together(work, 6)
    assert not wrong, wrong[:3]


def test_threads_capture_under_autocast():
    modes_and_sizes(20)


def test_autocast_remembers_no_fake_weights():
    """The memory of casts is locked while they die, and a fake tensor needs the interpreter."""

    def fake():
        gc.collect()
        return sum(type(x) is FakeTensor for x in gc.get_objects())

    net = nn.Linear(4, 2)
    compiled = magpy.compile(net, backend="eager", dynamic=True)
    before = fake()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(torch.ones(3, 4))
        assert fake() == before
    assert magpy.stats(compiled).entries == 1


def test_two_threads_call_the_same_function():
    same_function(1.5)


def test_two_threads_compile_their_own_functions():
    own_functions(1.5)


@pytest.mark.long
def test_two_threads_call_the_same_function_for_a_minute():
    same_function(60)


@pytest.mark.long
def test_two_threads_compile_their_own_functions_for_a_minute():
    own_functions(60)


def test_other_thread_runs_plain_while_one_captures():
    """The hook belongs to the capturing thread; another thread's program is not watched."""
    inside, done = threading.Event(), threading.Event()
    seen = []

    def other():
        inside.wait(10)
        for _ in range(100):
            seen.append(torch.ones(2).sum().item())
        done.set()

    def f(x):
        inside.set()
        done.wait(10)
        return x * 2

    t = threading.Thread(target=other)
    t.start()
    compiled = magpy.compile(f, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * 2)
    t.join()
    assert seen == [2.0] * 100


_COLD = """
import os, sys, tempfile
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
from concurrent.futures import ThreadPoolExecutor
import torch, magpy
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
compiled = magpy.compile(model)
def handle(x):
    with torch.inference_mode():
        return compiled(x)
with ThreadPoolExecutor(4) as pool:
    for _ in range(6):
        requests = [torch.randn(n, 8) for n in (2, 3, 4, 5)]
        for x, y in zip(requests, pool.map(handle, requests)):
            torch.testing.assert_close(y, handle(x)), torch.testing.assert_close(y, model(x))
stats = magpy.stats(compiled)
assert stats.hits and stats.share > 0.5 and not stats.uncompiled, stats
"""


def test_the_first_requests_of_a_server_come_on_several_threads():
    """Each imports the compiler, at another one of its modules, which import each other."""
    done = subprocess.run(
        [sys.executable, "-c", _COLD],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "MagpyWarning" not in done.stderr
