"""A callable of which some calls can be captured whole, and others have a line for Python.

Owns that the entries of the first go on to serve once there is a driver for the others, that
calls which differ from them in something new are captured whole, too, and that entries which
serve nobody are let go.
"""

import io

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same


@pytest.fixture(autouse=True)
def in_regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Training:
    """A step that reads a file, whose methods are unknown, in every tenth call."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.calls = 0
        self.file = []

    def step(self, x):
        self.calls += 1
        self.optimizer.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        if self.calls % 10 == 0:
            self.file.append(io.BytesIO(b"step").read())
        return loss.detach()


def whole_hits(c):
    return [e.hits for e in c._magpy_entries]


def test_a_step_that_logs_now_and_then_is_served_whole_in_between():
    eager, trained = Training(), Training()
    c = magpy.compile(trained.step, backend="eager")
    for _ in range(45):
        x = torch.randn(3, 4)
        assert_same(c(x), eager.step(x))
    assert trained.file == eager.file
    assert c._magpy_driver is not None
    # Forty of the calls do not log, of which two were captured, and one gave the optimizer its
    # state.
    assert sum(whole_hits(c)) >= 36
    assert magpy.stats(c).share > 0.9


def test_a_smaller_batch_is_captured_whole_although_there_is_a_driver():
    eager, trained = Training(), Training()
    c = magpy.compile(trained.step, backend="eager")
    for i in range(60):
        x = torch.randn(2 if i > 12 and i % 12 == 0 else 3, 4)
        assert_same(c(x), eager.step(x))
    assert trained.file == eager.file
    assert sum(whole_hits(c)) >= 44
    served = sum(whole_hits(c))
    assert_same(c(x := torch.randn(2, 4)), eager.step(x))
    assert sum(whole_hits(c)) == served + 1


def unrolled(model, x, decoding):
    if decoding:
        return model(x).softmax(-1)
    h = x[:, 0]
    for t in list(range(x.shape[1])):  # another program for each length
        h = model(h + x[:, t])
    return h


def test_a_path_that_storms_is_left_to_a_driver_and_the_other_stays_whole():
    """As in text generation: a prompt of another length in each request, and many tokens."""
    model = nn.Linear(4, 4)
    c = magpy.compile(unrolled, backend="eager")
    for length in (3, 7, 5, 9, 4, 8, 6, 11, 10, 12, 14, 13):
        x = torch.randn(2, length, 4)
        assert_same(c(model, x, False), unrolled(model, x, False))
        for _ in range(10):
            y = torch.randn(2, 4)
            assert_same(c(model, y, True), unrolled(model, y, True))
    s = magpy.stats(c)
    assert c._magpy_driver is not None
    assert s.captures <= 12, s
    assert s.eager_calls <= 3, s
    assert max(whole_hits(c)) >= 100
    assert s.share > 0.9, s


def test_entries_that_serve_nobody_are_let_go_when_a_driver_comes():
    model = nn.Linear(4, 4)
    c = magpy.compile(unrolled, backend="eager")
    for length in range(3, 20):
        x = torch.randn(2, length, 4)
        assert_same(c(model, x, False), unrolled(model, x, False))
    assert c._magpy_driver is not None
    assert whole_hits(c) == []


def test_calls_that_are_refused_for_the_same_reason_are_not_captured_again():
    """What a call was refused for once is the driver's at once from then on."""
    eager, trained = Training(), Training()
    c = magpy.compile(trained.step, backend="eager")
    for _ in range(25):
        x = torch.randn(3, 4)
        assert_same(c(x), eager.step(x))
    before = magpy.stats(c)
    for _ in range(60):
        x = torch.randn(3, 4)
        assert_same(c(x), eager.step(x))
    after = magpy.stats(c)
    assert after.captures == before.captures
    assert after.eager_calls == before.eager_calls
    assert trained.file == eager.file
