"""Every call compared with eager's for minutes: `python -m benchmarks.checked --minutes 10`.

The suite's models and the whole training steps are called in an order that is drawn, compiled
beside a twin that runs eagerly, while entries come and go: sizes, modes, weights and modules change
between the calls, callables reach the limits of entries and captures and are given up,
`magpy.reset` and `magpy.save` with `magpy.load` come in between.  Compared after each call are the
results or the exception, gradients, weights and buffers, and the state of the random numbers: bit
by bit with the backend "eager", else within a tolerance.  The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import magpy
from benchmarks import measure, steps, suite
from benchmarks.models import SUITE

#: How many worlds there are at a time, and how many calls one lives for.
_WORLDS, _LIFE = 4, 60
#: How often something is changed before a call.
_CHANGES = 0.2
#: How often one is given up that has a few entries.
_GIVES_UP = 0.02


class Difference(AssertionError):
    """A compiled call is not what eager's is."""


def compared(got: Any, want: Any, exactly: bool, what: str) -> None:
    """Compares values.

    Raises:
        Difference: they differ.
    """
    if isinstance(got, float) and isinstance(want, float):
        got, want = torch.tensor([got, want], dtype=torch.float64)[:, None]
    a, b = measure.tensors(got), measure.tensors(want)
    if exactly:
        same = len(a) == len(b) and all(
            x.shape == y.shape
            and x.dtype == y.dtype
            and x.stride() == y.stride()
            and x.requires_grad == y.requires_grad
            and _same_bits(x.detach(), y.detach())
            for x, y in zip(a, b, strict=True)
        )
    else:
        same = measure.worst_difference(got, want) <= suite.TOLERANCE["float32"]
    if not same or (not a and got != want):
        raise Difference(f"{what}: {got!r:.200} instead of {want!r:.200}")


def _same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.is_quantized:
        x, y = x.int_repr(), y.int_repr()
    return torch.equal(x, y) or bool(((x == y) | (x.isnan() & y.isnan())).all())


class World:
    """One program twice: compiled, and as it is."""

    def __init__(self, name: str, backend: str, draw: random.Random) -> None:
        """Makes it."""
        self.name, self.backend, self.draw = name, backend, draw
        self.models: list[nn.Module] = []
        self.compiled: Any = None
        self.log: collections.Counter[str] = collections.Counter()
        self._make()
        self._compile()

    def _make(self) -> None:
        raise NotImplementedError

    def _compile(self) -> None:
        raise NotImplementedError

    def call(self) -> None:
        """One call of both, compared."""
        raise NotImplementedError

    def change(self) -> str:
        """One change of both, or of what is compiled; gives its name ("reset": it is to come)."""
        raise NotImplementedError

    def noted(self) -> None:
        """Adds what the compiled callable has done, which is given up now."""
        s = magpy.stats(self.compiled)
        self.log.update(captures=s.captures, hits=s.hits, eager_calls=s.eager_calls)

    def twice(self, call: Callable[[int], Any], exactly: bool) -> None:
        """Calls the compiled one and eager's with the same random numbers, and compares."""
        seed, found, states = self.draw.randrange(1 << 30), [], []
        for i in (0, 1):
            torch.manual_seed(seed)
            try:
                found.append(call(i))
            except Exception as e:  # noqa: BLE001 - eager's is compared, too
                found.append((type(e), str(e)))
            states.append(torch.get_rng_state())
        compared(found[0], found[1], exactly, f"{self.name}, the result")
        compared(states[0], states[1], True, f"{self.name}, the random numbers")
        for kind in ("parameters", "buffers"):
            a, b = (dict(getattr(m, f"named_{kind}")()) for m in self.models)
            compared(a, b, exactly, f"{self.name}, its {kind}")
            grads = [{k: t.grad for k, t in d.items() if t.grad is not None} for d in (a, b)]
            compared(*grads, exactly, f"{self.name}, gradients")


class Model(World):
    """A model of the suite."""

    def _make(self) -> None:
        self.case = next(c for c in SUITE if c.name == self.name)
        self.models = [self.case.make(), self.case.make()]

    def _compile(self) -> None:
        self.compiled = magpy.compile(self.models[0], backend=self.backend)

    def call(self) -> None:
        batch, seed = self.draw.choice((1, 1, 2, 3, 5)), self.draw.randrange(1 << 30)
        trains = self.draw.random() < 0.2
        inputs = [self.case.example(batch, seed) for _ in (0, 1)]
        called = self.compiled, self.models[1]

        def call(i: int) -> Any:
            with torch.set_grad_enabled(trains):
                found = called[i](*inputs[i])
                if trains:
                    floats = [t for t in measure.tensors(found) if t.requires_grad]
                    if floats:
                        torch.stack([t.float().square().mean() for t in floats]).sum().backward()
            return found

        self.twice(call, self.backend == "eager")
        compared(*inputs, True, f"{self.name}, the arguments")

    def change(self) -> str:
        often = "weights", "data", "mode", "module", "frozen", "gradients", "load"
        kind = self.draw.choice((*often, *often, "reset", "anew"))
        which, seed = self.draw.randrange(1 << 20), self.draw.randrange(1 << 30)
        if kind == "anew":
            self.noted()
            self._compile()
        elif kind == "load":
            return self._load()
        elif kind != "reset":
            for model in self.models:
                torch.manual_seed(seed)
                _changed(model, kind, which)
        return kind

    def _load(self) -> str:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "entries")
            try:
                magpy.save(self.compiled, path)
                loaded = magpy.load(self.models[0], path)
            except (magpy.SaveError, magpy.LoadError):
                return "load refused"
        self.noted()
        self.compiled = loaded
        return "load"


def _changed(model: nn.Module, kind: str, which: int) -> None:
    """Changes a model, in the same way whichever of two twins it is."""
    floats = [p for p in model.parameters() if p.is_floating_point()]
    p = floats[which % len(floats)] if floats else None
    inner = [(m, name) for m in model.modules() for name in m._modules]
    if kind == "mode":
        model.train(not model.training)
    elif kind == "module" and inner:
        owner, name = inner[which % len(inner)]
        module = owner._modules[name]
        assert module is not None
        for hook in list(module._forward_hooks):
            del module._forward_hooks[hook]
            return
        module.register_forward_hook(_doubles)
    elif kind == "gradients":
        model.zero_grad()
    elif p is not None and kind == "weights":
        with torch.no_grad():
            p.mul_(0.5).add_(torch.randn(p.shape) * 0.01)
    elif p is not None and kind == "data":
        p.data = p.data + torch.randn(p.shape) * 0.01
    elif p is not None and kind == "frozen":
        p.requires_grad_(not p.requires_grad)
        p.grad = None


def _doubles(module: nn.Module, args: Any, result: Any) -> Any:
    return result * 2 if isinstance(result, torch.Tensor) else None


class Step(World):
    """A whole training step."""

    def _make(self) -> None:
        torch.manual_seed(0)
        self.step, self.x = steps.PROGRAMS[self.name]()
        torch.manual_seed(0)
        self.eager, _ = steps.PROGRAMS[self.name]()
        self.models = [_of_closure(self.step), _of_closure(self.eager)]

    def _compile(self) -> None:
        self.compiled = magpy.compile(self.step, backend=self.backend)

    def call(self) -> None:
        n = self.draw.choice((0, 0, 0, 1, 2))
        x = self.x[n:]
        called = self.compiled, self.eager
        self.twice(lambda i: called[i](x.clone()), self.backend == "eager")

    def change(self) -> str:
        kind = self.draw.choice(("reset", "anew"))
        if kind == "anew":
            self.noted()
            self._compile()
        return kind


def _of_closure(step: Any) -> nn.ModuleList:
    """The models of a step."""
    held = (cell.cell_contents for cell in step.__closure__)
    return nn.ModuleList(v for v in held if isinstance(v, nn.Module))


def run(
    seconds: float, backend: str, seed: int, calls: int = sys.maxsize
) -> collections.Counter[str]:
    """Calls for so many seconds, or so many calls; what happened, by its name and number."""
    draw = random.Random(seed)
    kinds: dict[str, type[World]] = dict.fromkeys((c.name for c in SUITE), Model)
    kinds |= dict.fromkeys(steps.PROGRAMS, Step)
    found: collections.Counter[str] = collections.Counter()
    worlds: list[World] = []
    lives: list[int] = []
    magpy.config.saving = True
    until = time.monotonic() + seconds
    while time.monotonic() < until and found["calls"] < calls:
        if len(worlds) < _WORLDS:
            name = draw.choice(sorted(kinds))
            worlds.append(kinds[name](name, backend, draw))
            lives.append(draw.randrange(_LIFE))
        i = draw.randrange(len(worlds))
        world = worlds[i]
        gives_up = draw.random() < _GIVES_UP
        magpy.config.max_entries, magpy.config.max_captures = (2, 3) if gives_up else (16, 64)
        if draw.random() < _CHANGES:
            kind = world.change()
            found[kind] += 1
            if kind == "reset":
                for w in worlds:
                    w.noted()
                magpy.reset()
        try:
            world.call()
        except Difference as e:
            found["differences"] += 1
            print(f"seed {seed}, call {found['calls']}: {e}", flush=True)
            lives[i] = 0
        found["calls"] += 1
        lives[i] -= 1
        if lives[i] < 0:
            world.noted()
            found.update(world.log)
            found["worlds"] += 1
            del worlds[i], lives[i], world
    for world in worlds:
        world.noted()
        found.update(world.log)
    return found


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", magpy.MagpyWarning)
    found = run(given.minutes * 60, given.backend, given.seed)
    told = ", ".join(f"{name} {n}" for name, n in sorted(found.items()) if name != "differences")
    print(f"{measure.machine_line()}; backend {given.backend}, seed {given.seed}: {told}")
    print(f"{found['calls']} calls compared, {found['differences']} differences")
    return 1 if found["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
