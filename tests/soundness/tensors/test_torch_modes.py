"""Modes on torch's stacks: one that the call enters, and those of devices."""

from __future__ import annotations

import contextlib
import traceback

import pytest
import torch
import torch.utils.checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

import magpy


class Times(TorchDispatchMode):
    """Multiplies what each operation gives, and counts."""

    def __init__(self, k):
        super().__init__()
        self.k, self.seen = k, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {})) * self.k


def _with(x, mode):
    with mode:
        return x + 1


def _by_hand(x, mode):
    mode.__enter__()
    try:
        return torch.relu(x) + 1
    finally:
        mode.__exit__(None, None, None)


def _after(x, mode):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(mode)
        y = x + 1
    return y * 2


def _made(x, mode):
    with Times(mode.k) as made:
        y = x + 1
    mode.seen += made.seen
    return y


@pytest.mark.parametrize("program", [_with, _by_hand, _after, _made])
def test_a_mode_is_entered_in_the_call(program):
    eager, ours = Times(3), Times(3)
    f = magpy.compile(program, backend="eager")
    for _ in range(3):
        assert f(torch.ones(2), ours).tolist() == program(torch.ones(2), eager).tolist()
        assert ours.seen == eager.seen
    assert any("_push_on_torch_dispatch_stack" in r for r in magpy.stats(f).reasons)


def test_a_device_that_is_set_anew_is_the_same_device():
    """Each `with torch.device(..)` makes a mode of its own."""
    f = magpy.compile(lambda x: (x + 1, torch.empty(1).device), backend="eager")
    for _ in range(4):
        with torch.device("cpu"):
            assert f(torch.ones(2))[0].tolist() == [2, 2]
    try:
        for _ in range(4):
            torch.set_default_device("cpu")
            f(torch.ones(2))
    finally:
        torch.set_default_device(None)
    assert magpy.stats(f).captures == 1
    x = torch.ones(2)
    for _ in range(2):
        with torch.device("meta"):
            assert f(x)[1].type == "meta"
        with torch.device("cpu"), torch.device("cpu"):
            assert f(x)[1].type == "cpu"
        assert f(x)[1].type == "cpu"


class Hears(TorchDispatchMode):
    """Keeps what it hears of."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        sizes = [tuple(map(type, a.shape)) for a in args if isinstance(a, torch.Tensor)]
        self.heard.append((str(func), sizes))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _dispatched():
    with Hears() as mode:
        yield mode.heard


@contextlib.contextmanager
def _saved():
    heard = []

    def pack(t):
        heard.append(("pack", type(t), tuple(map(type, t.shape)), t.sum().item()))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield heard


def _model(x, w):
    h = torch.tanh(x @ w)
    return (h * h).sum(0) * x.shape[0]


def _in_place(x, w):
    x.add_(1)
    h = x @ w
    h.mul_(2)
    return h.exp()


def _of_data(x, w):
    h = (x @ w).exp()
    return h * 2 if h.sum() > 0 else h.relu()


def _picks(x, w):
    return torch.sigmoid(x[x[:, 0] > -9] @ w)


def _enters_hooks(x, w):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return torch.tanh(x @ w)


@pytest.mark.parametrize("where", [_dispatched, _saved])
@pytest.mark.parametrize("program", [_model, _in_place, _of_data, _picks, _enters_hooks])
def test_nobody_hears_of_what_magpy_looks_at(program, where):
    """Of fake tensors least of all, with which sizes that vary are followed."""

    def outcome(f, w, n):
        x = torch.arange(4.0 * n).reshape(n, 4) / 10
        with where() as heard:
            y = f(x, w)
            y.sum().backward()
        return heard, y.tolist(), w.grad.tolist()

    weights = [torch.ones(4, 3, requires_grad=True) for _ in range(2)]
    f = magpy.compile(program, backend="eager")
    for n in (2, 3, 4, 4, 5):
        assert outcome(f, weights[1], n) == outcome(program, weights[0], n)


class HearsFunctions(torch.overrides.TorchFunctionMode):
    """Keeps what it hears of."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Hears, HearsFunctions])
def test_modes_hear_once_of_what_leads_to_a_branch(mode):
    def program(x, w):
        h = (x @ w).exp()
        return h.sin() * 2 if h.sum() > 100 else h.cos()

    def outcome(f, at):
        with mode() as entered:
            y = f(torch.full((3, 4), at), w)
        return entered.heard, y.tolist()

    w = torch.ones(4, 4)
    f = magpy.compile(program, backend="eager")
    for at in (-1.0, -1.0, 1.0, 1.0, -1.0, 1.0):
        assert outcome(f, at) == outcome(program, at)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("sizes", [(3,) * 12, (3, 3, 4, 5, 6, 4)])
@pytest.mark.parametrize("early", [True, False])
def test_a_compiled_block_is_checkpointed(backend, sizes, early):
    """Each checkpoint sets hooks of its own, and compares what two runs of the block save."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(5, 4)
    )

    def block(x):
        return model(x).softmax(-1)

    def outcome(f, n):
        torch.manual_seed(n)
        model.zero_grad()
        x = torch.randn(n, 4, requires_grad=True)
        with torch.utils.checkpoint.set_checkpoint_early_stop(early):
            y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
        y.sum().backward()
        return x.grad.tolist(), model[0].weight.grad.tolist()

    f = magpy.compile(block, backend=backend)
    for n in sizes:
        assert outcome(f, n) == outcome(block, n)
    # A capture runs eagerly in both passes, an entry serves both.
    stats = magpy.stats(f)
    assert stats.hits == 2 * (len(sizes) - stats.captures) > 0


def _enters_a_mode(x, w):
    with Hears() as mode:
        y = torch.tanh(x @ w)
    return y, mode.heard


def test_nobody_hears_where_the_call_enters_the_mode():
    w = torch.ones(4, 3)
    f = magpy.compile(_enters_a_mode, backend="eager")
    for n in (2, 3, 4, 4, 5):
        assert f(torch.ones(n, 4), w)[1] == _enters_a_mode(torch.ones(n, 4), w)[1]


def test_inference_tensors_that_cannot_be_changed_raise_at_their_line():
    """One that is detached outside of inference mode counts its changes, and can be."""

    def outcomes(compile):
        f = compile(lambda t: t.fill_(1))
        with torch.inference_mode():
            t = torch.zeros(2)
        found = []
        for each in (t.detach(), t.detach(), t, t.detach()):
            try:
                found.append(f(each).tolist())
            except RuntimeError as e:
                lines = [(x.filename, x.lineno) for x in traceback.extract_tb(e.__traceback__)]
                found.append((str(e), lines))
        return f, found

    f, found = outcomes(lambda f: magpy.compile(f, backend="eager"))
    assert found == outcomes(lambda f: f)[1]
    assert len(found[2][1]) == 2, "this function's line and the compiled one's"
    assert magpy.stats(f).hits == 2
