"""Which checks fail: counted by their words, and told once when one fails again."""

import logging
import re
import warnings

import pytest
import torch
from torch import nn

import magpy
from magpy.guards.words import Difference
from magpy.runtime import misses
from magpy.runtime.misses import OTHERS, Misses
from tests.comparison import assert_same

X = torch.arange(6.0).reshape(2, 3)


def rows(n):
    return torch.arange(3.0 * n).reshape(n, 3)


def weighted(x):
    total = 0
    for i in range(len(x)):
        total = total + x[i] * (i if i % 2 else 1)
    return total


def scaled(x, k, config=None):
    return x * k if config is None else x * k + config["bias"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.0)
        self.mode = "fast"

    def forward(self, x):
        return self.drop(self.layer(x)) * len(self.mode)


def warned(c, calls):
    """What magpy warns of while a callable is called."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for args in calls:
            c(*args)
    return [str(w.message) for w in found if w.category is magpy.MagpyWarning]


def test_nothing_is_counted_while_calls_fit():
    c = magpy.compile(scaled, backend="eager")
    for _ in range(3):
        c(X, 2)
    assert magpy.stats(c).misses == 1
    assert magpy.stats(c).misses_by == {}


def test_misses_are_counted_by_what_differs():
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    c(X, 2)
    for k in (3, 4):
        c(X, k)
    c(rows(5), 4)
    assert magpy.stats(c).misses_by == {"k": 2, "x.shape[0]": 1}
    assert list(magpy.stats(c)["misses_by"]) == ["k", "x.shape[0]"]


def test_attributes_of_a_module_are_counted_by_their_path():
    net = Net().eval()
    c = magpy.compile(net, backend="eager")
    c(X)
    net.mode = "slower"
    c(X)
    net.drop.train()
    c(X)
    assert magpy.stats(c).misses_by == {"self.mode": 1, "self.drop.training": 1}


def test_all_entries_are_looked_at_for_the_closest():
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    c(X, 2)
    c(rows(4), 3)
    c(rows(2), 5)
    assert magpy.stats(c).misses_by["k"] == 1, "the older entry has these sizes"


def test_a_value_of_data_that_leads_another_way_is_counted_and_not_told():
    c = magpy.compile(lambda x: x * 2 if x.sum() > 0 else x, backend="eager")
    assert warned(c, [(X,), (-X,), (X,)]) == []
    assert magpy.stats(c).misses_by == {misses.OF_DATA.what: 1}


def test_the_number_of_different_checks_is_bounded(monkeypatch):
    monkeypatch.setattr(misses, "_MOST", 2)
    c = magpy.compile(lambda d: {k: v * 2 for k, v in d.items()}, backend="eager")
    counted = Misses()
    for name in ("a", "b", "c", "d"):
        found = misses.Difference(name, "1", "2")
        monkeypatch.setattr(Misses, "_closest", lambda *_, found=found: found)
        counted.note(c, [], (), {})
    assert counted.counts == {"a": 1, "b": 1, OTHERS: 2}


def test_reset_forgets_what_was_counted():
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    c(X, 2)
    c(X, 3)
    magpy.reset(c)
    assert magpy.stats(c).misses_by == {}


def test_a_miss_that_repeats_is_told_once_with_the_line_that_fixes_the_value():
    c = magpy.compile(weighted, backend="eager")
    (text,) = warned(c, [(rows(n),) for n in (3, 4, 5, 6, 7)])
    line = weighted.__code__.co_firstlineno + 2
    place = re.escape(f"range(len(x)) at {__file__}:{line} fixes it")
    assert re.search(rf"weighted .*: x\.shape\[0\] was \d, is \d; {place}$", text)
    assert magpy.stats(c).misses_by == {"x.shape[0]": 4}


def test_a_number_of_an_object_that_is_fixed_is_told_by_its_path():
    class Rounds(nn.Module):
        rounds = 2

        def forward(self, x):
            return sum(x * i for i in range(self.rounds))

    net = Rounds()
    c = magpy.compile(net, backend="eager")
    told = []
    for rounds in (2, 3, 4, 5, 6):
        net.rounds = rounds
        told += warned(c, [(X,)])
    (text,) = told
    assert "self.rounds was 4, is 5; range(self.rounds) at " in text
    assert magpy.stats(c).misses_by == {"self.rounds": 3, misses.OF_DATA.what: 1}


def test_sizes_are_not_told_of_where_each_is_a_capture_of_its_own():
    c = magpy.compile(lambda x: x * 2, backend="eager", dynamic=False)
    assert warned(c, [(rows(n),) for n in (3, 4, 5, 6)]) == []
    assert magpy.stats(c).misses_by == {"x.shape[0]": 3}


def test_the_line_that_calls_a_library_is_not_blamed():
    space = {"__name__": "torch.library_of_a_test"}
    exec("def double_rows(x):\n    return [x[i] * 2 for i in range(len(x))]", space)
    c = magpy.compile(space["double_rows"], backend="eager")
    (text,) = warned(c, [(rows(n),) for n in (3, 4, 5, 6)])
    assert text.endswith("x.shape[0] was 4, is 5")


def test_a_miss_that_does_not_repeat_is_not_told():
    c = magpy.compile(scaled, backend="eager")
    calls = [(X, 2), (X, 3), (X, 4), (rows(4), 5), (rows(5), 6), (X.double(), 7)]
    assert warned(c, calls) == []


def test_calls_that_become_no_entry_are_not_told_of(tmp_path):
    path = tmp_path / "text"
    path.write_text("abc")

    def f(x, name):
        return x * 2 if name is None else x * len(open(name).read())

    c = magpy.compile(f, backend="eager")
    told = warned(c, [(X, None), *[(X, str(path))] * 3])
    assert not [text for text in told if "captured anew" in text]
    assert magpy.stats(c).misses_by["name"] >= 2


def test_the_limit_is_told_with_the_difference(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_entries", 1)
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    (text,) = warned(c, [(X, 2), (X, 3), (X, 4)])
    assert "1 entry was made and none fits (k was 2, is 3)" in text
    assert magpy.stats(c).misses_by == {"k": 1}, "nobody counts after that"


def test_the_log_of_misses_says_the_difference(monkeypatch, caplog):
    monkeypatch.setattr(magpy.config, "logs", frozenset({"miss"}))
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    c(X, 2, {"bias": 1.5})
    c(X, 2, {"bias": 2.5})
    (record,) = [r for r in caplog.records if r.name == "magpy"]
    assert record.levelno == logging.INFO
    assert record.getMessage() == "scaled: no entry holds: config['bias'] was 1.5, is 2.5"


def test_a_failure_of_the_words_is_no_failure_of_the_call(monkeypatch):
    def fail(*_):
        raise RuntimeError("no words")

    monkeypatch.setattr(misses, "_words", fail)
    c = magpy.compile(scaled, backend="eager", dynamic=False)
    for k in (2, 3, 4):
        assert_same(c(X, k), X * k)
    assert magpy.stats(c).captures == 3
    assert magpy.stats(c).misses_by == {}


@pytest.mark.parametrize(
    ("difference", "of_one"),
    [
        (Difference("x.shape[0]", "2", "1", of_tensor=True), True),
        (Difference("x.shape[0]", "2", "3", of_tensor=True), False),
        (Difference("x.shape[0] >= 2", "", "no longer holds: x.shape[0] is 1"), True),
        (Difference("batch", "2", "1"), True),
        (Difference("batch", "1", "8"), True),
        (Difference("batch", "1", "8", where="range(batch) at m.py:3"), False),
        (Difference("step", "0", "1"), False),
        (Difference("rate", "1.0", "2.0"), False),
        (Difference("len(beams)", "1", "2"), False),
        (Difference("name", "'1'", "'2'"), False),
    ],
)
def test_whether_a_size_of_one_is_what_differs(difference, of_one):
    assert difference.of_one is of_one


def test_a_size_of_one_is_counted_apart():
    misses = Misses()

    def f(x, n):
        return x.view(n, -1) if n == 1 else x * n

    compiled = magpy.compile(f, backend="eager")
    compiled(torch.ones(4), 2)
    seen = set()
    for n in (1, 3):
        misses.note(f, compiled._magpy_entries, (torch.ones(4), n), {})
        seen.add(misses.cause)
        assert misses.times == 1
    assert len(seen) == 2
