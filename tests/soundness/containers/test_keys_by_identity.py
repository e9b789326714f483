"""Dicts whose keys are tensors, modules and other objects that are equal to themselves alone."""

import collections

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same


class Token:
    """Equal to itself alone."""


class Named:
    """Equal to what has its name."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


class ByValue(torch.Tensor):
    """Tensors that hash by what they hold."""

    def __hash__(self):
        return int(self.sum())

    def __eq__(self, other):
        return isinstance(other, torch.Tensor) and self.shape == other.shape


KEYS = {
    "parameters": lambda: [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))],
    "buffers": lambda: [torch.ones(2), torch.zeros(2)],
    "modules": lambda: [nn.Linear(2, 2), nn.ReLU()],
    "objects": lambda: [Token(), Token()],
    "named": lambda: [Named("a"), Named("b")],
    "tensors_by_value": lambda: [
        torch.ones(2).as_subclass(ByValue),
        torch.ones(3).as_subclass(ByValue),
    ],
}


def steps_in_state(d, keys, x):
    for k in keys:
        state = d[k]
        if len(state) == 0:
            state["step"], state["mean"] = 0, torch.zeros(2)
        state["step"] += 1
        state["mean"] = state["mean"] * 0.5 + x
        x = x * (1 - 0.5 ** state["step"])
    return x


def counted(d, keys, x):
    for k in keys:
        d.setdefault(k, {"n": 0})["n"] += 1
    return x * len(d)


def there(d, keys, x):
    if keys[0] in d and keys[1] not in d:
        return x + 1
    return x * 2 if d.get(keys[1]) is None else x * 3


def taken_out(d, keys, x):
    last = d.pop(keys[1], None)
    d[keys[1]] = x
    if last is not None:
        x = x + last
    if keys[0] in d:
        del d[keys[0]]
    else:
        d[keys[0]] = 1
    return x


def kept_outputs(d, keys, x):
    for i, k in enumerate(keys):
        d[k] = x * i
    return sum(d.values())


PROGRAMS = [steps_in_state, counted, there, taken_out, kept_outputs]


def place(keys, key):
    """Where a key is among the keys: `list.index` would compare the elements of tensors."""
    return next(i for i, k in enumerate(keys) if k is key)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("make", [dict, lambda: collections.defaultdict(dict)], ids=["dict", "def"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_stands_under_keys(program, make, kind):
    def world(f):
        keys, d, seen = KEYS[kind](), make(), []
        if make is dict and program is steps_in_state:
            d.update((k, {}) for k in keys)
        for i in range(6):
            result = f(d, keys, torch.tensor([1.0, 2.0]) * i)
            seen.append((result, [(place(keys, k), repr(v)) for k, v in d.items()]))
        return seen

    compiled = magpy.compile(program, backend="eager")
    assert_same(world(compiled), world(program))
    stats = magpy.stats(compiled)
    by_value = kind in ("named", "tensors_by_value")
    assert stats.hits or by_value or stats.reasons
    if program is steps_in_state and not by_value:
        assert (stats.captures, stats.hits) == (2, 4)


class Lamb(torch.optim.Optimizer):
    """Counts its steps in numbers, as optimizers outside of torch do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p)
                state["step"] += 1
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                update = state["m"] / (1 - 0.9 ** state["step"])
                trust = (p.norm() / update.norm().clamp(min=1e-6)).clamp(max=10)
                p.add_(update * trust, alpha=-group["lr"])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_steps_that_an_optimizer_counts_for_each_parameter(backend):
    def world(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = Lamb(model.parameters())

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        seen = [step(torch.full((2, 3), float(i))) for i in range(8)]
        state = [(s["step"], s["m"]) for s in optimizer.state.values()]
        return (seen, state, [p.detach() for p in model.parameters()]), step

    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend=backend))
    assert_same(found, wanted)
    stats = magpy.stats(compiled)
    assert stats.captures <= 3 and stats.share == 1.0


def test_a_memo_by_the_tensor_that_is_given():
    def world(wrap):
        memo, seen = {}, []

        @wrap
        def f(x):
            if x in memo:
                return memo[x] + 1
            memo[x] = x * 2
            return memo[x]

        given = [torch.full((2,), float(i)) for i in range(3)]
        for x in (*given, *given, given[0]):
            seen.append((f(x), [place(given, k) for k in memo]))
        return seen, f

    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend="eager"))
    assert_same(found, wanted)


def test_another_object_under_the_same_address_is_another_key():
    def f(d, key, x):
        return x * 2 if key in d else x * 3

    compiled, x = magpy.compile(f, backend="eager"), torch.ones(2)
    for _ in range(4):
        key, d = Token(), {}
        d[key] = 1
        assert torch.equal(compiled(d, key, x), x * 2)
        other = Token()
        assert torch.equal(compiled(d, other, x), x * 3)
        del key, d, other


def test_a_class_that_compares_its_objects_from_some_call_on():
    def program(d, key, x):
        return x * d[key] if key in d else x * 100

    def world(f):
        kind = type("Kind", (), {})
        key, other = kind(), kind()
        d, seen = {key: 1.0}, []
        for i in range(6):
            if i == 3:
                kind.__eq__, kind.__hash__ = lambda a, b: True, lambda a: 1
                # A dict may find a key that it holds by another hash, or not: by the address.
                d = {key: 1.0}
            if i == 5:
                d = {other: 5.0}
            seen.append(f(d, key, torch.ones(1)))
        return seen

    assert_same(world(magpy.compile(program, backend="eager")), world(program))


def test_another_parameter_and_another_state_at_the_same_place():
    def program(state, parameters, x):
        own = state[parameters[0]]
        own["n"] += 1
        return x * own["n"]

    def world(f):
        p, q = (nn.Parameter(torch.ones(2)) for _ in range(2))
        state, parameters, seen = {p: {"n": 1}, q: {"n": 10}}, [p], []
        for i in range(8):
            if i == 3:
                parameters[0] = q
            if i == 5:
                state[q] = {"n": 100}
            if i == 7:
                del state[q]
                state[q] = {"n": 7}
            seen.append((f(state, parameters, torch.ones(1)), [s["n"] for s in state.values()]))
        return seen

    compiled = magpy.compile(program, backend="eager")
    assert_same(world(compiled), world(program))
    assert magpy.stats(compiled).hits >= 5
