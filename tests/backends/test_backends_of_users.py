"""Backends of users that give something else than they should, or use what is the program's."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import magpy
from magpy.replay.support import save, undo
from tests.comparison import assert_same

WRONG = {
    "a tensor": lambda gm: lambda *inputs: gm(*inputs)[0],
    "a dict": lambda gm: lambda *inputs: dict(enumerate(gm(*inputs))),
    "one too many": lambda gm: lambda *inputs: [*gm(*inputs), 1],
    "nothing": lambda gm: lambda *inputs: gm(*inputs) and None,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_has_run_before_the_results_were_seen_to_be_wrong_is_taken_back(wrong, dynamic):
    def outcomes(wrap):
        torch.manual_seed(0)
        held = torch.zeros(3)
        norm = torch.nn.BatchNorm1d(3)

        def program(x):
            held.add_(1)
            x.mul_(2)
            y = norm(x) + held * torch.rand(3)
            return y.detach() * 2

        f = wrap(program)
        found = []
        for n in (2, 2, 3, 4):
            x = torch.arange(3.0 * n).view(n, 3)
            found.append((f(x).tolist(), x.tolist(), held.tolist(), norm.running_mean.tolist()))
        return found, torch.rand(1).item(), f

    def backend(gm, inputs):
        return WRONG[wrong](gm)

    wanted = outcomes(lambda f: f)
    with pytest.warns(magpy.MagpyWarning, match="not a tuple or a list|gave .* results"):
        found = outcomes(lambda f: magpy.compile(f, backend=backend, dynamic=dynamic))
    assert found[:2] == wanted[:2]


def test_what_a_graph_changes_is_saved_by_one_operation_each():
    p, expanded = torch.nn.Parameter(torch.ones(3)), torch.ones(1).expand(4)
    with torch.profiler.profile() as profiler:
        saved = save((p, torch.ones(2), expanded), False, (), (p,))
    done = [e.name for e in profiler.events() if e.name.startswith("aten::")]
    assert done.count("aten::clone") == 3 and "aten::detach" not in done
    with torch.no_grad():
        p.add_(1)
    p.grad = torch.ones(3)
    undo(saved)
    assert torch.equal(p, torch.ones(3)) and p.is_leaf and p.grad is None


def _draws():
    torch.rand(3)
    random.random()
    np.random.rand()


SWITCHES = {
    "random numbers": _draws,
    "seeds": lambda: (torch.manual_seed(0), random.seed(0), np.random.seed(0)),
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "gradients": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_what_a_backend_does_to_the_programs_state_is_put_back(switch, fails):
    def backend(gm, inputs):
        SWITCHES[switch]()
        if fails:
            raise RuntimeError("not this one")
        return gm.forward

    def outcomes(wrap):
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        f = wrap(lambda x: (x * 2).sum())
        found = []
        for _ in range(3):
            result = f(torch.ones(2, requires_grad=True))
            found.append((result.item(), result.requires_grad, result.dtype))
            found.append((torch.rand(1).item(), random.random(), np.random.rand()))
            modes = torch.get_default_dtype(), torch.is_grad_enabled()
            found.append((*modes, torch.is_autocast_enabled("cpu")))
        return found

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend=backend)) == wanted


class TestGeneratorsOfThePrograms:
    """A generator that is given to operations moves once a call, whatever a compiler does."""

    @pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", lambda gm, _: gm])
    @pytest.mark.parametrize("of", ["values", "gradients", "two"])
    def test_numbers_are_those_of_eager(self, backend, of):
        def world(wrap):
            weight = torch.ones(3, requires_grad=True)
            first, second = (torch.Generator().manual_seed(i) for i in range(2))

            @wrap
            def f(x):
                noise = torch.randn(3, generator=first)
                if of == "two":
                    noise = noise + torch.empty(3).uniform_(generator=second)
                if of == "values":
                    return (weight * x).argmax() + noise
                return weight * x + noise

            seen = [f(torch.ones(3) * i).detach() for i in range(4)]
            return seen, first.get_state(), second.get_state()

        wanted = world(lambda f: f)
        assert_same(world(lambda f: magpy.compile(f, backend=backend)), wanted)
