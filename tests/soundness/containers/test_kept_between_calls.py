"""What calls keep from one to the next in lists, queues and dicts: states, caches, logs, counts.

Owns programs whose calls replace items of containers that live outside, and programs that look at
containers and not at all that these hold.  Does not own the effects themselves
(tests/soundness/effects/test_order_of_effects.py).
"""

from __future__ import annotations

import collections
import itertools
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import magpy
from tests.soundness.worlds import assert_served, attempt, case, check_all

CASES = []


def ones():
    return torch.ones(2)


def states_in_a_list(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(2, 2)
            self.states = [torch.zeros(1, 2) for _ in range(2)]

        def forward(self, t):
            for i in range(len(self.states)):
                t = self.states[i] = self.cell(t, self.states[i])
            return t

    m = Model()
    f = compile(m)
    with torch.no_grad():
        for _ in range(6):
            yield f(torch.randn(1, 2)), list(m.states)


def a_queue_of_results(compile):
    queue = collections.deque([torch.zeros(2)] * 3, maxlen=3)

    def f(t):
        queue.append(queue[-1] + t)
        return torch.stack(list(queue)).sum(0), len(queue), queue[0] is queue[1]

    f = compile(f)
    for _ in range(8):
        yield f(ones()), list(queue)


def first_in_first_out(compile):
    queue = [torch.zeros(2)] * 3

    def f(t):
        out = torch.stack(queue).sum(0) + t
        queue.pop(0)
        queue.append(out)
        return out

    f = compile(f)
    for _ in range(8):
        yield f(ones()), list(queue)


def items_change_places(compile):
    pair = [torch.zeros(2), torch.ones(2)]

    def f(t):
        pair[0], pair[1] = pair[1], pair[0] + t
        return pair[0] * 2

    f = compile(f)
    for _ in range(6):
        yield f(ones()), list(pair), pair[0] is pair[1]
    pair[0] = pair[1]
    yield f(ones()), list(pair), pair[0] is pair[1]


def states_in_dicts_of_dicts(compile):
    states = {i: {"k": torch.zeros(2)} for i in range(2)}

    def f(t):
        for state in states.values():
            state["k"] = state["k"] * 0.5 + t
            t = t + state["k"]
        return t

    f = compile(f)
    for _ in range(6):
        yield f(ones()), {i: dict(s) for i, s in states.items()}


def what_may_be_empty(compile):
    cache, last = {}, {"seen": []}

    def f(t):
        if cache:
            t = t + cache["previous"]
        if last["seen"]:
            t = t + last["seen"][-1]
        cache["previous"] = t
        last["seen"] = [t]
        return t

    f = compile(f)
    for _ in range(6):
        yield f(ones()), dict(cache)


def counts_of_several_kinds(compile):
    plain, default = {}, collections.defaultdict(int)
    counter, ordered = collections.Counter(z=1), collections.OrderedDict(a=1)

    def f(t):
        plain["n"] = plain.get("n", 0) + 1
        default["k"] += 2
        counter["z"] += 1
        ordered["a"] += 1
        return t * plain["n"] + default["k"] * counter["z"] + ordered["a"]

    f = compile(f)
    for i in range(9):
        if i == 5:
            default.clear()
        yield f(ones()), dict(plain), dict(default), dict(counter), list(ordered.items())


def settings_in_a_list(compile):
    groups = [{"rate": 0.1, "decay": 0.0, "log": []}, {"rate": 0.2, "decay": 0.0, "log": []}]

    def f(t):
        for i, group in enumerate(groups):
            t = t * group["rate"] + i
        return t, len(groups)

    f = compile(f)
    for i in range(8):
        groups[0]["rate"] = 0.3 * i
        groups[1]["log"].append(i)
        yield f(ones())


def numbers_in_lists(compile):
    count, totals = [0], [0.0, 1.0, "a"]

    def f(t):
        count[0] += 1
        totals[0] += 0.5
        totals[1] *= 2
        return t * count[0] + sum(totals[:2]), totals[-2]

    f = compile(f)
    for i in range(9):
        if i == 6:
            count[0] = 100
        yield f(ones()), list(count), list(totals)


def numbers_in_a_queue(compile):
    window = collections.deque([0.0] * 3, maxlen=3)

    def f(t):
        window.append(t.mean().item())
        return t - (window[0] + window[1] + window[-1]) / len(window), window[0]

    f = compile(f)
    for i in range(8):
        yield f(ones() * i), list(window)


def numbers_of_a_list_that_others_set(compile):
    weights = [1.0, 2.0, 3.0]

    def f(t):
        for i, w in enumerate(weights):
            t = t * w + i
        a, *rest = weights
        return t + weights[-1] * a + sum(rest), tuple(weights)

    f = compile(f)
    for i in range(9):
        weights[i % 3] = 1.5 * i
        yield f(ones())


SERVED = [
    numbers_in_lists,
    numbers_in_a_queue,
    numbers_of_a_list_that_others_set,
    states_in_a_list,
    a_queue_of_results,
    first_in_first_out,
    items_change_places,
    states_in_dicts_of_dicts,
    what_may_be_empty,
    counts_of_several_kinds,
    settings_in_a_list,
]
for program in SERVED:
    case(CASES)(program)


@case(CASES)
def other_items_of_a_list_that_calls_change(compile):
    kept = torch.ones(2)
    items = [torch.zeros(2), {"a": 1}, None, "s", kept, [1]]

    def f(t):
        out, a = items[0] + t, items[1]["a"]
        items[0], items[1] = out, {"a": a + 1}
        return out * a + items[4], items[3], items[5]

    def changes():
        yield
        yield
        items[4] = items[0]
        yield
        items[4] = kept
        yield
        items[3] = "t"
        yield
        items[0] = torch.zeros(2, dtype=torch.double)
        yield
        items[1] = collections.OrderedDict(a=3)
        yield
        items[5] = [2]
        yield
        items.append(3)
        yield
        items[0] = torch.zeros(3)[1:]
        yield

    f = compile(f)
    for _ in changes():
        yield f(ones()), list(items)


@case(CASES)
def other_uses_of_numbers_in_lists(compile):
    weights, best, places = [1.0, 2.0, 3.0], [float("inf"), 0], [0, 1]

    def f(t):
        loss = t.mean().item()
        if loss < best[0]:
            best[:] = [loss, 0]
        else:
            best[1] += 1
        found = weights[1] in weights, weights.index(weights[2]), weights.count(weights[0])
        chosen = t.expand(3, 2)[places[0] : places[1]]
        return chosen, found, str(weights), max(weights), sorted(weights), weights + [best[1]]

    f = compile(f)
    for i in range(12):
        if i < 6:
            weights[i % 3] = 1.5 * i
        if i == 7:
            places[1] = 2
        if i == 8:
            weights.append(weights[0])
        if i == 9:
            weights[0] = 3
        if i == 10:
            weights[0], weights[1] = "a", 1 << 60
        yield attempt(f, ones() * (5 - i % 4)), list(weights), list(best)


@case(CASES)
def numbers_in_what_gives_other_items(compile):
    class Tens(list):
        def __getitem__(self, i):
            return 10

    class Hundreds(dict):
        def __getitem__(self, key):
            return 100

    tens, hundreds = Tens([-1]), Hundreds(a=1)

    def f(out):
        out.extend(tens)
        out += [tens[0], hundreds["a"], hundreds.get("a")]
        tens[0] = 1
        return out

    f = compile(f)
    for i in range(6):
        yield f([]), list.__getitem__(tens, 0)
        hundreds["a"] = list.__getitem__(tens, 0) * i
        list.__setitem__(tens, 0, i * 3)


@case(CASES)
def what_containers_in_containers_hold(compile):
    groups = [{"n": 1.0, "l": [1.0]}, {"n": 2.0, "l": [2.0]}]
    named = {"p": groups[0], "q": groups[1]}

    def f(t):
        s = 0.0
        for i, g in enumerate(groups):
            s += g["n"] * i
        for _, v in named.items():
            s += v["l"][0]
        for a, b in zip(list(groups), [*named.values()], strict=False):
            s += a["l"][0] * b["n"]
        for d in (dict(named), named.copy()):
            s += d["p"]["n"]
        for g in reversed(groups):
            s += g["l"][0]
        for g in itertools.chain(groups, named.values()):
            s = s * 2 + g["n"]
        for g, _ in itertools.product(groups, named):
            s += g["n"]
        return t * (s + len(groups) + len(named) + bool(groups) + bool(named["q"]["l"]))

    def changes():
        groups[0]["n"] = 5.0
        yield
        groups[1]["l"][0] = 7.0
        yield
        named["p"] = {"n": 3.0, "l": [4.0]}
        yield
        groups[0]["l"] = [8.0]
        yield
        named["q"]["l"].append(1.5)
        yield
        groups.append({"n": 0.0, "l": [1.0]})
        yield
        named["r"] = groups[0]
        yield
        groups[0]["n"] = 6
        yield
        groups.reverse()
        yield
        groups[0] = groups[1]
        yield

    f = compile(f)
    yield f(ones()), f(ones())
    for _ in changes():
        yield f(ones()), f(ones())


@case(CASES)
def containers_in_containers_are_changed(compile):
    groups = [{"n": 1.0, "l": [1.0]}, {"n": 2.0, "l": [2.0]}]
    named = {"p": groups[0], "q": groups[1]}

    def f(t):
        for i, g in enumerate(groups):
            g["n"] += i
            g["l"].append(g["n"])
        for _, v in named.items():
            v["l"][0] = v["n"] * 2
        for a, b in zip(list(groups), [*named.values()], strict=True):
            t = t * a["l"][0] + b["l"][-1]
        for g in reversed(list(groups)):
            g["n"] = len(g["l"]) * 1.0
        return t, list(named), dict(named), [tuple(g["l"]) for g in groups]

    f = compile(f)
    for i in range(6):
        if i == 3:
            groups[0]["l"].clear()
            groups[0]["l"].append(0.0)
        if i == 4:
            groups[1] = {"n": 9.0, "l": [3.0]}
        yield f(ones()), groups, named


@case(CASES)
def counts_under_names_that_are_made_of_numbers(compile):
    def program(counts, name):
        def f(t):
            counts[name.format((t > 0).sum().item())] += counts.get("b", 1)
            return t + 1

        return f

    for name in ("at {}", "some"):
        for counts in (
            {"at 1": 0, "some": 0, "b": 2},
            collections.Counter(["a"]),
            collections.defaultdict(int),
            collections.OrderedDict({"at 1": 0, "some": 0}),
        ):
            f = compile(program(counts, name))
            for i in range(6):
                if i == 4:
                    counts["b"] = 5
                yield f(torch.tensor([1.0, -1.0])), dict(counts)


@case(CASES)
def tables_that_are_looked_up_with_numbers(compile):
    names, rates = {0: "cat", 1: "dog"}, {"0": 0.5, "1": torch.ones(2)}
    nested, order = {(0, 1): [1.0]}, ["a", "b"]

    def f(t):
        n = t.argmax().item()
        return names[n], t * rates[str(n)], nested[n, 1][0], names.get(n), n in names, order[n]

    f = compile(f)
    t = torch.tensor([1.0, 0.0])
    yield f(t), f(t)
    names[0] = "bird"
    yield f(t), f(t)
    rates["0"] = 0.25
    yield f(t), f(t)
    nested[0, 1] = [2.0]
    yield f(t), f(t)
    nested[0, 1][0] = 3.0
    yield f(t), f(t)
    order[0] = "c"
    yield f(t), f(t)
    rates["0"] = torch.ones(2)
    yield f(t), f(t)


@case(CASES)
def keys_that_note_when_they_are_compared(compile):
    """Looking into a dict or a set must not run code of the program's once more."""
    seen = []

    class Key:
        def __init__(self, v):
            self.v = v

        def __hash__(self):
            return 1

        def __eq__(self, other):
            seen.append(self.v)
            return self.v == other.v

    table, members = {Key(1): 1.0, Key(2): 2.0}, {Key(1), Key(2)}
    yield compile(lambda t: t * table[Key(2)])(ones()), len(seen)
    yield compile(lambda t: t * (Key(2) in members))(ones()), len(seen) > 3


test_kept = check_all(CASES)


def test_what_calls_keep_serves_calls():
    for program in SERVED:
        assert_served(program, captures=4)


@pytest.mark.parametrize(
    "look",
    [
        len,
        list,
        tuple,
        bool,
        lambda x: [i for i, _ in enumerate(x)],
        lambda x: next(iter(x)),
        lambda x: list(zip(x, reversed(x), strict=True)),
        lambda x: list(itertools.chain(x, x)),
        lambda x: x.copy(),
        lambda x: [*x],
    ],
)
def test_what_is_not_read_may_change(look):
    groups = [{"rate": 0.1}, {"rate": 0.2}]

    def f(t):
        look(groups)
        return t * 2

    c = magpy.compile(f, backend="eager")
    for i in range(4):
        groups[0]["rate"] = i
        c(ones())
    assert magpy.stats(c).hits == 3, magpy.stats(c)


DTYPES = [
    "np.dtype(np.float32)",
    "np.dtype(None)",
    "np.dtype(object)",
    "np.dtype(np.longlong)",
    "np.dtype('S')",
    "np.dtype('M8')",
    "np.dtypes.Float32DType()",
    "np.result_type('f4', 'i8')",
    "np.dtype([('a', 'f4')])['a']",
    "np.dtype(('f4', (2,))).base",
    "np.ones(2)[0].dtype",
    "np.ones(2).astype('f4').dtype",
    "t.numpy().dtype",
    "t.sum().numpy().dtype",
    # These numpy makes anew each time.
    "np.dtype('f4', copy=True)",
    "np.dtype('M8[D]')",
    "np.dtype('>f4')",
    "np.dtype('S3')",
    "np.dtype([('a', 'f4')])",
]


@pytest.mark.parametrize("made", DTYPES)
def test_the_one_dtype_of_its_type_that_numpy_has(made):
    namespace = {"np": np, "torch": torch}
    exec(f"def f(t):\n    return t + 1, {made}", namespace)
    f = magpy.compile(namespace["f"], backend="eager")
    expected, other = namespace["f"](ones())[1], namespace["f"](ones())[1]
    kept = [f(ones())[1] for _ in range(4)]
    assert magpy.stats(f).hits == 3
    assert kept == [expected] * 4
    same = expected is other
    assert [x is expected for x in kept] == [same] * 4
    assert len({id(x) for x in kept}) == (1 if same else 4)


@pytest.mark.parametrize(
    "asked",
    [
        "p is np.dtype('f4')",
        "np.zeros(2, p).dtype is p",
        "np.zeros(2, p).dtype is np.dtype('f4')",
        "{id(np.dtype('f4')): 1}.get(id(p))",
    ],
)
def test_a_dtype_and_its_copy_are_told_apart(asked):
    namespace = {"np": np}
    exec(f"def f(t, p):\n    return t + 1, {asked}, p", namespace)
    f = magpy.compile(namespace["f"], backend="eager")
    own = np.dtype("f4")
    for dtype in [own, np.dtype("f4", copy=True)] * 3:
        expected = namespace["f"](ones(), dtype)[1]
        _, answer, given = f(ones(), dtype)
        assert answer == expected
        assert given is dtype
    assert magpy.stats(f).hits == 4


@pytest.mark.parametrize(
    "read",
    [
        "holder['d']",
        "holder['a'].dtype",
        "np.zeros(2, holder['d']).dtype",
        "next(iter(holder['k']))",
    ],
)
def test_a_copy_of_a_dtype_where_the_dtype_was_between_calls(read):
    holder: dict[str, object] = {}
    namespace = {"np": np, "holder": holder, "own": np.dtype("f4")}
    exec(
        f"def f(t):\n    d = {read}\n    return t + 1, d is own, d is np.dtype('f4'), d", namespace
    )
    f = magpy.compile(namespace["f"], backend="eager")
    own, copied = np.dtype("f4"), np.dtype("f4", copy=True)
    unpickled = pickle.loads(pickle.dumps(np.zeros(2, own)))
    worlds = [
        {"d": dtype, "a": np.zeros(2, dtype), "k": {dtype: 1}}
        for dtype in (own, copied, unpickled.dtype)
    ]
    for world in worlds * 3:
        holder.update(world)
        expected, got = namespace["f"](ones()), f(ones())
        assert got[1:3] == expected[1:3]
        assert got[3] is expected[3]
    assert magpy.stats(f).hits >= 6
