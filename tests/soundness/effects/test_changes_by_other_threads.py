"""Other threads change what a call changes while it is captured: only its own is redone."""

import collections
import copy
import functools
import itertools
import operator
import sys
import threading
import time
import types

import pytest
import torch

import magpy
from magpy.capture import races


class State:
    """What the threads share; a class of its own for each test, whose attributes change too."""

    def __init__(self):
        self.calls = 0
        self.last = ""
        self.by = {}
        self.default = collections.defaultdict(int)
        self.count = collections.Counter()
        self.ordered = collections.OrderedDict(a=1)
        self.seen = []
        self.places = [0, 0, 0, 0]
        self.window = collections.deque(maxlen=10_000)
        self.names = set()
        self.tensors = {}


class Slots:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0


def attribute(state, who):
    state.calls += 1


def last(state, who):
    state.last = who


def key(state, who):
    state.by[who] = state.by.get(who, 0) + 1


def default(state, who):
    state.default[who] += 1


def counter(state, who):
    state.count.update([who])


def ordered(state, who):
    state.ordered[who] = 2


def appended(state, who):
    state.seen.append(who)


def appended_and_extended(state, who):
    state.seen.append(who)
    state.seen.extend([1, 2])


def place(state, who):
    state.places[len(who) % 4] = who
    state.places[2] = len(who)


def place_from_the_end(state, who):
    state.places[-1] = who


def place_and_appended(state, who):
    state.places[0] = who
    state.seen.append(who)


def window(state, who):
    state.window.append(len(who))


def names(state, who):
    state.names.add(who)


def tensor(state, who):
    state.tensors[who] = torch.ones(2) * len(who)


def pop(state, who):
    state.by[who] = 1
    state.by.pop(who)


def several(state, who):
    state.by[who] = 1
    state.by["any"] = who
    state.calls += 2
    state.seen.append(state.calls)


CHANGES = [
    attribute,
    last,
    key,
    default,
    counter,
    ordered,
    appended,
    appended_and_extended,
    place,
    place_from_the_end,
    place_and_appended,
    window,
    names,
    tensor,
    pop,
    several,
]


def meanwhile(change, state, call):
    """Calls `call` while another thread changes the state: how often it did so within the calls."""
    stop, begun, rounds = threading.Event(), threading.Event(), 0

    def other():
        nonlocal rounds
        while not stop.is_set():
            change(state, "other")
            begun.set()
            rounds += 1
            time.sleep(1e-4)

    thread, interval = threading.Thread(target=other), sys.getswitchinterval()
    thread.start()
    begun.wait()
    before = rounds
    sys.setswitchinterval(1e-5)  # else a short call may be over before the other thread has a turn
    try:
        call()
        return rounds - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def content(state):
    return {
        name: [(k, v.tolist()) for k, v in value.items()] if name == "tensors" else copy.copy(value)
        for name, value in vars(state).items()
    }


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_another_thread_changes_is_not_redone(change):
    def step(state, x, who):
        change(state, who)
        for _ in range(40):
            x = torch.relu(x @ x)
        return x

    raced = 0
    for _ in range(5):
        state, x = State(), torch.eye(4)
        compiled = magpy.compile(step, backend="eager")
        raced += meanwhile(change, state, lambda c=compiled, s=state, x=x: c(s, x, "main"))
        expected = State()
        vars(expected).update(copy.deepcopy(vars(state)))
        for _ in range(4):
            compiled(state, x, "main")
            step(expected, x, "main")
            assert content(state) == content(expected)
        if change is not counter:  # C code counts in it: all of it is compared
            assert magpy.stats(compiled).hits > 0
    assert raced > 0


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_another_thread_changes_while_the_changes_are_gathered(monkeypatch, change):
    gather, turns = races.OwnChanges.__init__, []

    def gather_and_give_way(own, session):
        gather(own, session)
        if not turns:
            turns.append(threading.Thread(target=change, args=(state, "other")))
            turns[0].start()
            turns[0].join()

    def step(state, x, who):
        change(state, who)
        return torch.relu(x)

    monkeypatch.setattr(races.OwnChanges, "__init__", gather_and_give_way)
    state, x = State(), torch.eye(4)
    change(state, "other")  # the last value may be the one from before the call
    compiled = magpy.compile(step, backend="eager")
    compiled(state, x, "main")
    assert turns
    expected = State()
    vars(expected).update(copy.deepcopy(vars(state)))
    for _ in range(4):
        compiled(state, x, "main")
        step(expected, x, "main")
        assert content(state) == content(expected)
    if change is not counter:  # C code counts in it: all of it is compared
        assert magpy.stats(compiled).hits > 0


def test_attributes_of_classes_slots_and_cells():
    def make():
        cls, slots, n = type("Own", (), {"calls": 0}), Slots(), 0

        def change(_, who):
            nonlocal n
            n += 1
            cls.calls += 1
            slots.calls += 1

        def step(x):
            change(None, "main")
            for _ in range(40):
                x = torch.relu(x @ x)
            return x

        return change, step, lambda: (n, cls.calls, slots.calls)

    raced = 0
    for _ in range(5):
        change, step, counts = make()
        compiled, x = magpy.compile(step, backend="eager"), torch.eye(4)
        raced += meanwhile(change, None, lambda c=compiled, x=x: c(x))
        before = counts()
        for i in range(1, 5):
            compiled(x)
            assert counts() == tuple(n + i for n in before)
        assert magpy.stats(compiled).hits > 0
    assert raced > 0


def test_what_another_thread_stores_between_two_reads_is_no_part_of_an_entry():
    state = types.SimpleNamespace(scale=1.0, calls=0)

    def step(x):
        state.calls += 1
        scale = state.scale
        for _ in range(40):
            x = torch.relu(x @ x)
        return x * scale, x * state.scale

    def change(_, who):
        state.scale = 3.0 - state.scale

    raced = 0
    for _ in range(5):
        compiled, x = magpy.compile(step, backend="eager"), torch.eye(4)
        raced += meanwhile(change, None, lambda c=compiled, x=x: c(x))
        for scale in (1.0, 2.0, 1.0, 2.0):
            state.scale = scale
            assert all(torch.equal(y, torch.eye(4) * scale) for y in compiled(x))
    assert raced > 0


def test_a_call_that_always_races_is_left_to_python(monkeypatch):
    state = State()

    def step(x, who):
        names(state, who)
        return torch.relu(x)

    gather, numbers = races.OwnChanges.__init__, itertools.count()

    def gather_after_another_thread(own, session):
        gather(own, session)
        other = threading.Thread(target=lambda: state.names.add(f"other{next(numbers)}"))
        other.start()
        other.join()

    monkeypatch.setattr(races.OwnChanges, "__init__", gather_after_another_thread)
    compiled, x = magpy.compile(step, backend="eager"), torch.eye(4)
    for i in range(30):
        compiled(x, f"main{i}")
    assert state.names >= {f"main{i}" for i in range(30)} | {"other0"}
    stats = magpy.stats(compiled)
    assert stats.eager_calls > 0
    assert any("another thread changes a set" in r for r in stats.reasons)


class Counts(torch.nn.Module):
    """Its class says in Python where a store goes: a buffer, a parameter, a module."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.last = None

    def forward(self, x):
        self.calls = self.calls + 1
        self.last = x
        for _ in range(40):
            x = torch.relu(x @ x)
        return x + self.calls


class Doubled:
    """Its class stores something else than what it is given, and some of it nowhere."""

    __slots__ = ("n", "seen")

    def __init__(self):
        object.__setattr__(self, "n", 0)
        object.__setattr__(self, "seen", 0)

    def __setattr__(self, name, value):
        if name != "seen":
            object.__setattr__(self, name, value * 2)


def test_stores_that_a_class_takes_elsewhere_are_no_race():
    other, state = State(), State()
    raced = 0
    for _ in range(5):
        m, x = Counts(), torch.eye(4)
        compiled = magpy.compile(m, backend="eager")

        def calls(compiled=compiled, m=m, x=x):
            for i in range(3):
                assert torch.equal(compiled(x), torch.eye(4) + i + 1)
                assert m.last is x and "calls" not in m.__dict__

        raced += meanwhile(attribute, other, calls)
        stats = magpy.stats(compiled)
        assert stats.hits >= 2 and not stats.eager_calls and not stats.reasons

    def step(x):
        state.by.n = 3
        state.by.seen = 5
        for _ in range(40):
            x = torch.relu(x @ x)
        return x

    for _ in range(5):
        state.by = Doubled()
        compiled, x = magpy.compile(step, backend="eager"), torch.eye(4)
        raced += meanwhile(attribute, other, lambda c=compiled, x=x: (c(x), c(x)))
        assert (state.by.n, state.by.seen) == (6, 0)
        assert magpy.stats(compiled).hits >= 1 and not magpy.stats(compiled).eager_calls
    assert raced > 0


def missing_key(d, key):
    d[key].append(1)


def missing_within_a_factory(d, key):
    d.default_factory = lambda: [len(d.inner["b"])]
    d[key].append(2)


def missing_by_getitem(d, key):
    operator.getitem(d, key).append(1)


def missing_by_map(d, key):
    for found in map(d.__getitem__, [key, key]):
        found.append(1)


def missing_by_missing(d, key):
    d.__missing__(key).append(1)


def made_and_deleted(d, key):
    d[key].append(1)
    del d[key]
    d[key] = [3]


class Nested(collections.defaultdict):
    """Has another one."""

    def __init__(self):
        super().__init__(list)
        self.inner = collections.defaultdict(list)


WAYS = [
    *(missing_key, missing_within_a_factory, missing_by_getitem, missing_by_map),
    *(missing_by_missing, made_and_deleted),
]


@pytest.mark.parametrize("of", ["text", "parameter", "object"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_factory_makes_is_the_runs(way, of):
    other, raced = State(), 0
    make = {"text": lambda: "k", "parameter": lambda: torch.nn.Parameter(torch.ones(1))}

    def program(d, key, x):
        for _ in range(20):
            x = torch.relu(x @ x)
        way(d, key)
        for _ in range(20):
            x = torch.relu(x @ x)
        return x

    def world(f):
        nonlocal raced
        seen, key = [], make.get(of, Slots)()
        for _ in range(4):
            d = Nested() if way is missing_within_a_factory else collections.defaultdict(list)
            d["there"].append(0)
            call = functools.partial(f, d, key, torch.eye(4))
            raced += meanwhile(attribute, other, call)
            seen.append([(k is key, v) for k, v in d.items()])
            seen.append(dict(getattr(d, "inner", {})))
        return seen

    compiled = magpy.compile(program, backend="eager")
    assert world(compiled) == world(program)
    assert raced > 0
    if way is missing_key:
        assert not magpy.stats(compiled).eager_calls


def test_first_steps_of_an_optimizer_beside_other_threads_are_captured():
    other, raced = State(), 0
    for _ in range(5):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.Adam(model.parameters())

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            return loss.item()

        compiled = magpy.compile(step, backend="eager")
        raced += meanwhile(
            attribute, other, lambda c=compiled: [c(torch.ones(64, 64)) for _ in "ab"]
        )
        assert not magpy.stats(compiled).eager_calls
        assert [s["step"].item() for s in optimizer.state.values()] == [2.0, 2.0]
    assert raced > 0


def test_what_another_thread_makes_in_a_defaultdict_is_not_the_runs():
    d = collections.defaultdict(list)

    def change(_, who):
        d[f"{who}{len(d)}"].append(1)

    def step(x):
        for _ in range(40):
            x = torch.relu(x @ x)
        d["run"].append(2)
        return x

    compiled, raced = magpy.compile(step, backend="eager"), 0
    raced += meanwhile(change, None, lambda: [compiled(torch.eye(4)) for _ in range(3)])
    assert d["run"] == [2, 2, 2] and raced > 0
    others = {k: list(v) for k, v in d.items() if k != "run"}
    compiled(torch.eye(4))
    assert {k: v for k, v in d.items() if k != "run"} == others
