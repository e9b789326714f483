"""Locks that the program takes are taken in each call: what they protect is done one by one."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import magpy
from magpy.errors import CaptureError

CALLS, THREADS = 60, 4


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Server(nn.Module):
    """Counts its calls, and a sum of their numbers, below a lock."""

    def __init__(self, lock):
        super().__init__()
        self.layer, self.lock = nn.Linear(4, 4), lock
        self.count, self.total = 0, torch.zeros(4)

    def number(self):
        n = self.count
        self.total.add_(torch.ones(4))
        total = self.total.sum().item()
        self.count = n + 1
        return n, total


class Block(Server):
    def forward(self, x):
        y = self.layer(x).relu()
        with self.lock:
            n, total = self.number()
        return y + 1, n, total


class Pairs(Server):
    def forward(self, x):
        y = self.layer(x).relu()
        self.lock.acquire()
        try:
            n, total = self.number()
        finally:
            self.lock.release()
        return y + 1, n, total


class Below(Server):
    def locked(self):
        with self.lock:
            return self.number()

    def forward(self, x):
        y = self.layer(x).relu()
        return y + 1, *self.locked()


LOCKS = [threading.Lock, threading.RLock, threading.Condition, threading.Semaphore]


def _in_threads(work):
    errors = []

    def run():
        try:
            for _ in range(CALLS):
                work()
        except BaseException as e:  # noqa: BLE001 - handed to the test
            errors.append(e)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors


WAYS = [*((Block, lock) for lock in LOCKS), (Pairs, threading.Lock), (Below, threading.Lock)]


@pytest.mark.parametrize(("cls", "lock"), WAYS)
def test_what_a_lock_protects_is_done_one_by_one(cls, lock):
    model = cls(lock())
    compiled = magpy.compile(model, backend="eager")
    given = []
    x = torch.ones(2, 4)
    with torch.no_grad():
        want = model.layer(x).relu() + 1

    def work():
        with torch.no_grad():
            y, n, total = compiled(x)
        assert torch.equal(y, want)
        given.append((n, total))

    _in_threads(work)
    assert sorted(given) == [(n, 4.0 * (n + 1)) for n in range(CALLS * THREADS)]
    assert magpy.stats(compiled).share > 0.8


def test_training_steps_below_a_lock():
    model, lock = nn.Linear(8, 8), threading.Lock()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = []

    def step(x):
        with lock:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            done.append(1)
        return loss.item()

    compiled = magpy.compile(step, backend="eager")
    _in_threads(lambda: compiled(torch.ones(4, 8)))
    assert len(done) == CALLS * THREADS


def test_a_lock_is_waited_for():
    lock = threading.Lock()

    def program(x):
        with lock:
            return x + 1

    compiled = magpy.compile(program, backend="eager")
    for _ in range(4):
        compiled(torch.ones(2))
    lock.acquire()
    thread = threading.Thread(target=compiled, args=(torch.ones(2),))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    lock.release()
    thread.join(20)
    assert not thread.is_alive()


def test_a_lock_that_the_call_makes_costs_nothing():
    def program(x):
        with threading.Lock():
            return x + 1

    compiled = magpy.compile(program, backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2))
    assert magpy.stats(compiled).hits == 2


def test_a_whole_graph_has_no_lock():
    lock = threading.Lock()

    def program(x):
        with lock:
            return x + 1

    with pytest.raises(CaptureError, match="a lock is taken"):
        magpy.compile(program, backend="eager", fullgraph=True)(torch.ones(2))


def test_threads_that_start_cold_learn_once():
    barrier, lock = threading.Barrier(8), threading.Lock()
    layer = nn.Linear(4, 4)

    def program(x):
        y = layer(x).relu()
        with lock:
            y = y + 1
        return y.sigmoid() * 2

    compiled = magpy.compile(program, backend="eager")
    x = torch.ones(2, 4)
    want = program(x)

    def serve():
        barrier.wait()
        for _ in range(20):
            assert torch.equal(compiled(x), want)

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert magpy.stats(compiled).share == 1.0, magpy.stats(compiled)
    before = magpy.stats(compiled).eager_calls
    compiled(x)
    assert magpy.stats(compiled).eager_calls == before
