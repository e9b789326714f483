"""Which names a piece of code counts with."""

import pytest

from magpy.instrument.counters import counters

TOTAL = 0


def added(self):
    self.calls += 1


def assigned(self, n):
    self.calls = self.calls + n


def by_a_local(self, n):
    i = self.next
    self.rows[i] = n
    i = (i + 1) % 8
    self.next = i


def by_a_conditional(self, n):
    self.calls = self.calls + 1 if n else 0


def two_at_once(self):
    self.a, self.b = self.b, self.a + self.b


def item(d):
    d["k"] += 1


def made_by_its_first_use(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return x * self.calls


def written_first(self, loss):
    self.loss = loss.item()
    return self.loss


def only_written(self, loss):
    self.loss = loss.item()


def of_a_module():
    global TOTAL
    TOTAL += 1


def closure():
    n = 0

    def inner():
        nonlocal n
        n += 1

    return inner


def clamped(self, sizes):
    if min(sizes) <= self.window:
        self.shift = 0
        self.window = min(sizes)
    return self.window


def remembered(self, n):
    if self.last != n:
        self.rows = self.build(n)
        self.last = n


def local(n):
    n += 1
    return n


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (added, {"calls"}),
        (assigned, {"calls"}),
        (by_a_local, {"next"}),
        (by_a_conditional, {"calls"}),
        (two_at_once, {"a", "b"}),
        (item, {"k"}),
        (made_by_its_first_use, {"calls"}),
        (written_first, {"loss"}),
        (only_written, set()),
        (of_a_module, {"TOTAL"}),
        (closure(), {"n"}),
        (clamped, set()),
        (remembered, set()),
        (local, set()),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_counters(code, names):
    assert counters(code.__code__) == names
