"""Dicts and sets from outside that a program asks and changes at keys that are inputs.

Such a table grows from call to call: it is asked again, and changed in the order of the run.
"""

import pytest
import torch

import magpy

USERS = [f"user{i * i % 7}" for i in range(12)]
OTHERS = [f"user{i * i % 5}" for i in range(12)]


class Kept:
    """What a program keeps from call to call."""

    def __init__(self):
        self.counts, self.seen, self.history = {}, set(), []
        self.total = {"all": 0}
        self.levels = {"user0": 1, "user1": 2.5, "user2": None, "user4": "high"}


def counted(k, x, a, b):
    k.counts[a] = k.counts.get(a, 0) + 1
    return x + k.counts[a]


def added_up(k, x, a, b):
    k.seen.add(a)
    k.counts[a] = k.counts.get(a, 0) + 1
    k.history.append((a, k.counts[a]))
    return x * 2, len(k.seen), len(k.counts)


def two_keys_that_may_be_one(k, x, a, b):
    k.counts[a] = k.counts.get(a, 0) + 1
    k.counts[b] = k.counts.get(b, 0) + 10
    return x + k.counts[a], k.counts[b]


def two_elements_that_may_be_one(k, x, a, b):
    k.seen.add(a)
    k.seen.add(b)
    return x + len(k.seen), b in k.seen, "user1" in k.seen


def beside_a_key_that_is_always_the_same(k, x, a, b):
    k.total["all"] += 1
    k.total[a] = k.total.get(a, 0) + 1
    k.total["user1"] = 7
    return x + k.total["all"], k.total[a], k.total["user1"]


def known_or_new(k, x, a, b):
    if a in k.counts:
        return x * k.counts[a]
    k.counts[a] = len(a) + len(k.counts)
    return x - 1


def missing_is_caught(k, x, a, b):
    try:
        return x + k.counts[a]
    except KeyError:
        k.counts[a] = 3
        return x


def increased_in_place(k, x, a, b):
    k.total[a] = k.total.get(a, 0)
    k.total[a] += 2
    k.total[a] -= k.total.get(b, 1)
    return x + k.total[a]


def of_data(k, x, a, b):
    label = int(x.sum().item()) % 3
    k.counts[label] = k.counts.get(label, 0) + 1
    return x + k.counts[label]


def true_is_one(k, x, a, b):
    k.counts[len(a) - 4] = len(b)
    k.counts[True] = k.counts.get(1, 0)
    return x + k.counts[1], True in k.counts


def values_of_all_kinds(k, x, a, b):
    found = k.levels.get(a)
    k.levels[a], k.levels[b] = b, found
    return x * 2, found, k.levels[a], k.levels.get(b, 0.5)


def tensors_are_put_there(k, x, a, b):
    k.counts[a] = x * 2
    return x + 1, len(k.counts)


def objects_come_back(k, x, a, b):
    k.counts[a] = [x.shape[0]]
    k.counts[a].append(1)
    return x + len(k.counts[a])


def gone_through_afterwards(k, x, a, b):
    k.counts[a] = k.counts.get(a, 0) + 1
    return x + sum(k.counts.values())


def gone_through_before(k, x, a, b):
    n = sum(k.counts.values())
    k.counts[a] = n
    return x + k.counts[a]


def taken_out_again(k, x, a, b):
    k.counts[a] = 1
    k.counts.pop(b, None)
    del k.total["all"]
    k.total[a] = 2
    k.total["all"] = 3
    return x + len(k.counts)


def replaced(k, x, a, b):
    if len(k.counts) > 2:
        k.counts = {}
    k.counts[a] = k.counts.get(a, 0) + 1
    return x + k.counts[a]


def printed(k, x, a, b):
    k.counts[a] = k.counts.get(a, 0) + 1
    print(a, k.counts[a])
    return x + 1


def given_back(k, x, a, b):
    k.counts[a] = k.counts.get(a, 0) + 1
    return x + 1, dict(k.counts), a


def of_attributes(k, x, a, b):
    vars(k)[a] = len(a)
    return x + vars(k)[a], getattr(k, "user1", 0)


SERVED = [
    counted,
    added_up,
    two_keys_that_may_be_one,
    two_elements_that_may_be_one,
    beside_a_key_that_is_always_the_same,
    known_or_new,
    increased_in_place,
    of_data,
    printed,
    tensors_are_put_there,
]
RIGHT = [
    missing_is_caught,
    values_of_all_kinds,
    objects_come_back,
    gone_through_afterwards,
    gone_through_before,
    taken_out_again,
    replaced,
    given_back,
    of_attributes,
    true_is_one,
]


def run_both(use, capsys, calls=12, between=lambda k, i: None):
    """Runs a program in eager and compiled, in step; gives the figures."""
    there, here = Kept(), Kept()
    compiled = magpy.compile(lambda x, a, b: use(here, x, a, b), backend="eager")
    for i, (a, b) in enumerate(zip(USERS[:calls], OTHERS, strict=False)):
        between(there, i)
        between(here, i)
        x = torch.linspace(0, i, 4)
        got = outcome(lambda x=x, a=a, b=b: compiled(x, a, b))
        printed = capsys.readouterr().out
        assert got == outcome(lambda x=x, a=a, b=b: use(there, x, a, b)), i
        assert printed == capsys.readouterr().out
        for name in vars(there):
            one, other = vars(there)[name], vars(here)[name]
            assert repr(one) == repr(other) or one == other, (i, name)
            assert type(one) is not dict or list(one) == list(other), (i, name)
        assert list(vars(there)) == list(vars(here))
    return magpy.stats(compiled)


def outcome(call):
    try:
        return repr(call())
    except Exception as e:
        return type(e), e.args


@pytest.mark.parametrize("use", SERVED, ids=lambda f: f.__name__)
def test_tables_that_grow_are_served(use, capsys):
    stats = run_both(use, capsys)
    assert stats.captures <= 4
    assert stats.hits >= 8


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("use", RIGHT, ids=lambda f: f.__name__)
def test_tables_that_are_looked_into_otherwise_are_right(use, regions, capsys, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", regions)
    run_both(use, capsys)


@pytest.mark.parametrize("use", [*SERVED, *RIGHT], ids=lambda f: f.__name__)
def test_what_others_put_there_is_found(use, capsys):
    def between(k, i):
        if i % 4 == 3:
            for key in (USERS[i], OTHERS[i], 0):
                k.counts[key] = (0.5, "text", None, True, 7, [1])[i % 6]
                k.seen.add(key)
        if i == 9:
            k.counts = {"user2": 1}
            k.seen = {"user1"}

    run_both(use, capsys, between=between)


class Mine(dict):
    """Counts how often it is asked."""

    asked = 0

    def get(self, key, default=None):
        Mine.asked += 1
        return super().get(key, default)


def test_another_kind_of_dict_in_its_place_is_asked_as_it_says(capsys):
    def between(k, i):
        if i == 6:
            k.counts = Mine(k.counts)

    for use in (counted, known_or_new):
        Mine.asked = 0
        run_both(use, capsys, between=between)
        assert Mine.asked == (12 if use is counted else 0)


class Key:
    """An object that is equal to a text."""

    def __init__(self, text, log):
        self.text, self.log = text, log

    def __hash__(self):
        return hash(self.text)

    def __eq__(self, other):
        self.log.append(other)
        return self.text == other


@pytest.mark.parametrize("holder", [dict, set])
def test_keys_that_compare_by_code_are_asked_as_in_eager(holder):
    def run(compile):
        log = []
        keys = [Key("user1", log), Key("user4", log)]
        table = dict.fromkeys(keys, 5) if holder is dict else set(keys)

        def f(x, a):
            if holder is set:
                table.add(a)
                return x + len(table)
            table[a] = table.get(a, 0) + 1
            return x + table[a]

        g, found = compile(f), []
        for a in USERS:
            found.append((g(torch.ones(2), a).tolist(), len(log)))
        return found

    assert run(lambda f: f) == run(lambda f: magpy.compile(f, backend="eager"))


def test_the_first_key_of_equal_ones_stays():
    there, here = {1: 0, "a": 0}, {1: 0, "a": 0}

    def program(table):
        def f(x, key):
            table[key] = table.get(key, 0) + 1
            return x + table[key]

        return f

    eager, compiled = program(there), magpy.compile(program(here), backend="eager")
    for key in (1, 2, True, 1.0, 3, "a", "b", False, 0, 2.0, 4):
        assert torch.equal(compiled(torch.ones(2), key), eager(torch.ones(2), key))
        assert repr(here) == repr(there)


def test_nothing_is_put_there_by_a_call_that_leaves_its_entry():
    there, here = {}, {}

    def program(table):
        def f(x, a):
            table[a] = table.get(a, 0) + 1
            return x * 2 if x.sum() > 0 else x - table[a]

        return f

    eager, compiled = program(there), magpy.compile(program(here), backend="eager")
    for i, a in enumerate(USERS):
        x = torch.full((3,), float(i % 3 - 1))
        assert torch.equal(compiled(x, a), eager(x, a))
        assert here == there
    assert magpy.stats(compiled).hits >= 6


def test_tables_among_the_arguments():
    def f(x, one, other, a):
        one[a] = one.get(a, 0) + 1
        return x + other.get(a, 0), len(one), len(other)

    compiled = magpy.compile(f, backend="eager")
    there, here = [{}, {}], [{}, {}]
    for i, a in enumerate(USERS * 2):
        at = (0, i // 4 % 2)
        x = torch.ones(2) * i
        got = compiled(x, *(here[n] for n in at), a)
        assert repr(got) == repr(f(x, *(there[n] for n in at), a))
        assert here == there
    assert magpy.stats(compiled).captures <= 6
    mine, theirs = Mine(), Mine()
    for a in USERS:
        assert repr(compiled(x, mine, here[0], a)) == repr(f(x, theirs, there[0], a))
        assert mine == theirs


def test_a_table_within_an_argument():
    def f(x, request):
        request["by"][request["user"]] = request["by"].get(request["user"], 0) + 1
        return x + request["by"][request["user"]]

    compiled = magpy.compile(f, backend="eager")
    for i, a in enumerate(USERS):
        here, there = ({"by": {"user1": i}, "user": a} for _ in range(2))
        assert torch.equal(compiled(torch.ones(2), here), f(torch.ones(2), there))
        assert here == there
