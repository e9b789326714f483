"""Many instances, few captures: modules and functions that differ from call to call.

Owns: modules given as arguments or reached through them, closures, compiled callables of one piece
of code (magpy/runtime/families.py): what shares entries and, as much, what must not.
"""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import magpy


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))


def call(module: Any, x: torch.Tensor) -> Any:
    return module(x)


def check(c: Any, f: Callable[..., Any], module: nn.Module, x: torch.Tensor) -> None:
    """One call and its backward pass do what eager does to a copy of the module."""
    module.zero_grad()
    twin = copy.deepcopy(module)
    given, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    result, wanted = c(module, given), f(twin, expected)
    assert torch.equal(result, wanted)
    result.sum().backward()
    wanted.sum().backward()
    assert torch.equal(given.grad, expected.grad)
    for (name, a), (_, b) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or torch.equal(a.grad, b.grad), name
    for (name, a), (_, b) in zip(module.named_buffers(), twin.named_buffers(), strict=True):
        assert torch.equal(a, b), name


def test_modules_among_the_arguments_share_one_entry() -> None:
    c = magpy.compile(call, backend="eager")
    for _ in range(5):
        module = Block()
        for _ in range(2):
            check(c, call, module, torch.rand(3, 4))
    s = magpy.stats(c)
    assert (s.captures, s.entries, s.eager_calls) == (2, 1, 0)


def change(what: str, module: Block) -> Any:
    if what == "training":
        module.eval()
    elif what == "frozen":
        module.up.weight.requires_grad_(False)
    elif what == "tied":
        module.down.weight = nn.Parameter(module.up.weight.t())
        module.extra = module.up.weight
        module.up.bias = nn.Parameter(torch.rand(8))
        module.norm.weight = module.norm.bias
    elif what == "twice":
        module.up = nn.Sequential(module.up)
    elif what == "hook":
        module.up.register_forward_hook(lambda m, a, r: r * 2)
    elif what == "forward":
        module.up.forward = lambda x: torch.ones(x.shape[0], 8)
    elif what == "class":
        module.up.__class__ = type("Other", (nn.Linear,), {"forward": lambda s, x: s.weight[:, 0]})
    elif what == "number":
        module.scale = 3.0
    elif what == "parameter is a buffer":
        bias = module.up.bias.detach()
        del module.up.bias
        module.up.register_buffer("bias", bias)
    elif what == "dtype":
        module.double()
    elif what == "momentum":
        module.norm.momentum = 0.5
    return module


@pytest.mark.parametrize(
    "what",
    [
        "training",
        "frozen",
        "tied",
        "twice",
        "hook",
        "forward",
        "class",
        "number",
        "parameter is a buffer",
        "dtype",
        "momentum",
    ],
)
def test_modules_that_differ_are_not_confused(what: str) -> None:
    c = magpy.compile(call, backend="eager")
    dtype = torch.float64 if what == "dtype" else torch.float32
    for _ in range(3):
        check(c, call, Block(), torch.rand(3, 4))
    assert magpy.stats(c).captures == 2
    for _ in range(2):
        check(c, call, change(what, Block()), torch.rand(3, 4, dtype=dtype))
        check(c, call, Block(), torch.rand(3, 4))
    assert magpy.stats(c).captures <= 4


def test_what_is_one_module_in_one_call_may_be_two_in_another() -> None:
    def both(a: Any, b: Any, x: Any) -> Any:
        return b(a(x))

    c = magpy.compile(both, backend="eager")
    modules = [Block().eval() for _ in range(3)]
    x = torch.rand(3, 4)
    for a in modules:
        for b in modules:
            assert torch.equal(c(a, b, x), both(a, b, x))
    assert magpy.stats(c).captures <= 4


def test_a_module_that_is_known_otherwise_too_stays_this_one() -> None:
    known = Block().eval()

    def f(module: Any, x: Any) -> Any:
        return known(module(x)) if module is not known else module(x)

    c = magpy.compile(f, backend="eager")
    x = torch.rand(3, 4)
    for module in (Block().eval(), Block().eval(), known, Block().eval(), known):
        assert torch.equal(c(module, x), f(module, x))


def test_what_a_call_changes_in_a_module_is_changed_in_its_own() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen = 0, []
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.seen.append(len(self.seen))
            self.total += x.sum(0)
            self.last = x * 2
            return self.total * self.calls

    c = magpy.compile(call, backend="eager")
    modules = [Counter() for _ in range(4)]
    twins = [Counter() for _ in range(4)]
    for i in range(12):
        x = torch.rand(3, 4)
        a, b = modules[i % 4], twins[i % 4]
        assert torch.equal(c(a, x), b(x))
        assert (a.calls, a.seen) == (b.calls, b.seen)
        assert torch.equal(a.total, b.total)
        assert torch.equal(a.last, b.last)
    assert all(m.calls == 3 for m in modules)


def test_dropped_modules_are_let_go() -> None:
    c = magpy.compile(call, backend="eager")
    seen: list[weakref.ref[Any]] = []
    for _ in range(20):
        module = Block().eval()
        c(module, torch.rand(3, 4))
        seen.append(weakref.ref(module))
        del module
    gc.collect()
    assert [r() for r in seen] == [None] * 20
    assert magpy.stats(c).captures == 2


def test_a_decorated_method_of_many_instances() -> None:
    class Ranker:
        def __init__(self, i: int) -> None:
            self.block, self.bias, self.calls = Block().eval(), i / 7, 0

        @magpy.compile(backend="eager")
        def rank(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.block(x) + self.bias

    rankers = [Ranker(i) for i in range(10)]
    x = torch.rand(3, 4)
    for _ in range(2):
        for r in rankers:
            assert torch.equal(r.rank(x), r.block(x) + r.bias)
    assert [r.calls for r in rankers] == [2] * 10
    assert magpy.stats(Ranker.rank).captures <= 3


def test_functions_among_the_arguments_count_by_code_and_contents() -> None:
    def apply(f: Any, x: Any) -> Any:
        return f(x) + 1

    def scaled(t: Any) -> Any:
        return lambda x: x * t

    def shifted(t: Any, by: Any = 2) -> Any:
        def shift(x: Any, by: Any = by, *, sign: Any = t) -> Any:
            return x + by * sign

        return shift

    c = magpy.compile(apply, backend="eager")
    x = torch.rand(3)
    for _ in range(6):
        f = scaled(torch.rand(3))
        assert torch.equal(c(f, x), apply(f, x))
    assert magpy.stats(c).captures == 2
    for i in range(6):
        g = shifted(torch.rand(3), torch.rand(3) if i % 2 else 2)
        assert torch.equal(c(g, x), apply(g, x))
    assert magpy.stats(c).captures <= 5


def test_closures_of_one_function_share_entries() -> None:
    block = Block().eval()

    def make(scale: float, name: str) -> Any:
        def scaled(x: Any) -> Any:
            return block(x * scale), name

        return scaled

    plain = [make(1 + i / 3, f"h{i}") for i in range(12)]
    made = [magpy.compile(f, backend="eager") for f in plain]
    x = torch.rand(3, 4)
    for _ in range(2):
        for c, f in zip(made, plain, strict=True):
            (a, name), (b, wanted) = c(x), f(x)
            assert torch.equal(a, b)
            assert name == wanted
    stats = [magpy.stats(c) for c in made]
    assert sum(s.captures for s in stats) <= 4
    assert sum(s.hits for s in stats) >= 20


def test_layers_that_are_compiled_each_share_entries() -> None:
    layers = [Block() for _ in range(8)]
    compiled = [magpy.compile(layer, backend="eager") for layer in layers]
    twins = copy.deepcopy(layers)
    for _ in range(3):
        x = torch.rand(3, 4)
        a = b = x
        for layer, twin in zip(compiled, twins, strict=True):
            a, b = layer(a), twin(b)
        assert torch.equal(a, b)
        a.sum().backward()
        b.sum().backward()
        for layer, twin in zip(layers, twins, strict=True):
            for p, q in zip(layer.parameters(), twin.parameters(), strict=True):
                assert torch.equal(p.grad, q.grad)
            assert torch.equal(layer.norm.running_mean, twin.norm.running_mean)
    assert sum(magpy.stats(c).captures for c in compiled) == 2
    assert sum(magpy.stats(c).hits for c in compiled) == 22


def test_a_member_whose_call_is_refused_goes_its_own_way() -> None:
    def make(i: int) -> Any:
        def f(x: Any) -> Any:
            if i == 2:
                globals()["_kept"] = open  # noqa: PLW0603,RUF100
                x.numpy().tofile("/dev/null")
            return x * i

        return f

    plain = [make(i) for i in range(5)]
    made = [magpy.compile(f, backend="eager") for f in plain]
    x = torch.rand(3)
    for _ in range(3):
        for c, f in zip(made, plain, strict=True):
            assert torch.equal(c(x), f(x))
    assert magpy.stats(made[4]).hits >= 2


def test_exceptions_pass_through_shared_entries() -> None:
    def make(limit: int) -> Any:
        def f(x: Any) -> Any:
            if x.shape[0] > limit:
                raise ValueError(f"more than {limit}")
            return x + 1

        return f

    made = [magpy.compile(make(i), backend="eager") for i in (2, 3, 4)]
    for c, limit in zip(made, (2, 3, 4), strict=True):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"more than {limit}") as e:
                c(torch.rand(5))
            names = [t.frame.code.name for t in e.traceback]
            assert names == ["test_exceptions_pass_through_shared_entries", "f"]


def test_a_dropped_member_is_let_go() -> None:
    def make() -> Any:
        t = torch.rand(3)
        return (lambda x: x * t), weakref.ref(t)

    kept = []
    for _ in range(5):
        f, ref = make()
        c = magpy.compile(f, backend="eager")
        assert torch.equal(c(torch.ones(3)), ref())
        kept.append(ref)
        del f, c
    gc.collect()
    assert [r() for r in kept] == [None] * 5


def test_one_function_compiled_twice_has_entries_of_its_own() -> None:
    def f(x: Any) -> Any:
        return x + 1

    a, b = magpy.compile(f, backend="eager"), magpy.compile(f, backend="eager")
    for c in (a, b):
        c(torch.ones(3))
        c(torch.ones(3))
        assert (magpy.stats(c).captures, magpy.stats(c).hits, len(c._magpy_entries)) == (1, 1, 1)


def test_what_an_instance_keeps_between_calls_is_its_own() -> None:
    def make() -> Any:
        k: Any = 1.0

        def f(x: Any, seen: Any = []) -> Any:  # noqa: B006 - that it is kept is the point
            seen.append(1)
            return x * len(seen) * k

        def give(v: Any) -> None:
            nonlocal k
            k = v

        return f, give

    pairs, twins = [make() for _ in range(4)], [make() for _ in range(4)]
    made = [magpy.compile(f, backend="eager") for f, _ in pairs]
    x = torch.ones(3)
    for v in (1.0, 2.0, 3.0, 3.0, torch.full((3,), 5.0)):
        for c, (_, give), (f, give_twin) in zip(made, pairs, twins, strict=True):
            give(v)
            give_twin(v)
            assert torch.equal(c(x), f(x))


def test_threads_compile_and_call_what_is_alike() -> None:
    wrong: list[Any] = []
    shared = magpy.compile(call, backend="eager")
    x = torch.rand(3, 4)

    def work() -> None:
        for _ in range(10):
            module = Block().eval()
            own = magpy.compile(module, backend="eager")
            wanted = module(x)
            wrong.extend(1 for c in (own, own) if not torch.equal(c(x), wanted))
            wrong.extend(1 for _ in range(2) if not torch.equal(shared(module, x), wanted))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_each_instance_tells_why_it_ran_eagerly() -> None:
    def make() -> Callable[..., Any]:
        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.func.linearize(torch.sin, x)[0]

        return f

    for _ in range(4):
        c = magpy.compile(make(), backend="eager")
        assert torch.equal(c(torch.ones(2)), torch.ones(2).sin())
        assert ["linearize is called" in r for r in magpy.stats(c).reasons] == [True]


def _deep(depth: int) -> torch.nn.Module:
    torch.manual_seed(depth)
    return _Deep(depth)


class _Deep(torch.nn.Module):
    """A model of some depth."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        layers = (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()) for _ in range(depth))
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_members_of_other_depths_are_served_by_entries_of_the_family():
    models = [_deep(d) for d in (14, 12, 13)]
    compiled = [magpy.compile(m, backend="eager") for m in models]
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(80):
            for c, m in zip(compiled, models, strict=True):
                assert torch.equal(c(x), m(x))
        for c in compiled[1:]:
            stats = magpy.stats(c)
            assert stats.captures == 1 and stats.eager_calls == 0 and stats.hits == 79
        models[1].layers[3] = torch.nn.Linear(3, 3)
        assert torch.equal(compiled[1](x), models[1](x))


def test_members_that_are_alike_go_on_sharing_entries():
    models = [_deep(14)] + [_deep(12) for _ in range(3)]
    compiled = [magpy.compile(m, backend="eager") for m in models]
    with torch.no_grad():
        for _ in range(80):
            for c in compiled:
                c(torch.ones(2, 3))
    assert sum(magpy.stats(c).captures for c in compiled[1:]) == 1
    assert sum(magpy.stats(c).hits for c in compiled[1:]) == 3 * 80 - 1


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_each_of_many_instances_with_a_refused_line_runs_in_part(kept, monkeypatch) -> None:
    monkeypatch.setattr(magpy.config, "regions", True)
    local = threading.local()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            h = self.first(x).tanh()
            local.last = h.shape
            return self.second(h).sigmoid() + x

    instances, shares = [], []
    for i in range(2 * magpy.config.max_refusals + 2):
        net = Net()
        compiled = magpy.compile(net, backend="eager")
        for _ in range(6):
            x = torch.randn(3, 4) + i
            assert torch.equal(compiled(x), net(x))
        shares.append(magpy.stats(compiled).share)
        instances += [net, compiled] if kept else []
    assert shares == [1.0] * len(shares)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
}


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.steps = model, optimizer, 0

    def learn(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return learn(self.model, self.optimizer, x)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    kept = [list(s.values()) for s in optimizer.state.values()]
    gradients = [p.grad for p in model.parameters()]
    return [*model.state_dict().values(), *gradients, *(v for s in kept for v in s)]


def assert_same_state(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        same = torch.equal(a, b) if isinstance(a, torch.Tensor) and b is not None else a == b
        assert same, (a, b)


@pytest.mark.parametrize("kind", ["arguments", "object"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_training_step_serves_all_models(name: str, kind: str) -> None:
    """The folds of a validation, the members of an ensemble, the clients of federated learning."""
    c = magpy.compile(learn if kind == "arguments" else Trainer.learn, backend="eager")
    pairs = []
    for i in range(5):
        torch.manual_seed(i)
        model = Block()
        twin = copy.deepcopy(model)
        pairs.append([(m, OPTIMIZERS[name](m.parameters())) for m in (model, twin)])
    for i in range(4):
        for k, (ours, theirs) in enumerate(pairs):
            x = torch.full((3, 4), i + k / 8)
            got = c(*ours, x) if kind == "arguments" else c(Trainer(*ours), x)
            assert torch.equal(got, learn(*theirs, x))
            assert_same_state(state_of(*ours), state_of(*theirs))
    # The first model's first step, that of the others, and all that come later.
    assert magpy.stats(c).captures == 3
    assert magpy.stats(c).eager_calls == 0


UNLIKE: dict[str, Callable[[list[Any]], object]] = {
    "hook": lambda pairs: pairs[1][0].up.weight.register_hook(lambda g: g * 2),
    "accumulated": lambda pairs: pairs[1][0].up.weight.register_post_accumulate_grad_hook(
        lambda p: p.grad.mul_(2)
    ),
    "frozen": lambda pairs: pairs[1][0].up.weight.requires_grad_(False),
    "tied": lambda pairs: setattr(pairs[1][0].up, "weight", pairs[2][0].up.weight),
    "swapped optimizers": lambda pairs: pairs.__setitem__(1, (pairs[1][0], pairs[2][1])),
    "no state of one": lambda pairs: pairs[1][1].state.pop(pairs[1][0].up.weight),
    "another's state": lambda pairs: pairs[1][1].state.update(
        {pairs[1][0].up.weight: pairs[2][1].state[pairs[2][0].up.weight]}
    ),
    "group": lambda pairs: pairs[1][1].param_groups[0].update(weight_decay=0.5),
    "gradient": lambda pairs: setattr(pairs[1][0].up.weight, "grad", torch.ones(8, 4)),
}


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize("what", UNLIKE)
def test_a_training_step_for_many_models_sees_what_differs(what: str, name: str) -> None:
    def world(compile: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        c, found = compile(learn), []
        models = [Block() for _ in range(3)]
        pairs = [(m, OPTIMIZERS[name](m.parameters())) for m in models]
        for i in range(6):
            if i == 3:
                UNLIKE[what](pairs)
            for k, pair in enumerate(pairs):
                try:
                    found.append(c(*pair, torch.full((3, 4), i + k / 8)))
                except (RuntimeError, KeyError) as e:
                    found.append(repr(e))
            found += [t.clone() if t is not None else None for p in pairs for t in state_of(*p)]
        return found

    ours, theirs = world(lambda f: magpy.compile(f, backend="eager")), world(lambda f: f)
    assert_same_state(ours, theirs)


def test_models_that_a_training_step_was_given_are_let_go() -> None:
    c = magpy.compile(learn, backend="eager")
    gone = []
    for _ in range(4):
        model = Block()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        for i in range(3):
            c(model, optimizer, torch.full((3, 4), i / 3))
        gone += [weakref.ref(model), weakref.ref(model.up.weight)]
        del model, optimizer
    gc.collect()
    assert [ref() for ref in gone[2:]] == [None] * (len(gone) - 2)
