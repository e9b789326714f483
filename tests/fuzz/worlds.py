"""Runs one program in two worlds, eager and compiled, and finds the first difference.

Owns: what a program is, and what of a world can be seen. Does not own: where programs come from
(`grammar.py`), their shortening (`shrink.py`), processes (`__main__.py`). A program is the text of
a module with a callable `target` and a generator function `steps(f)`, which calls `f` (the target,
or the compiled target), changes its world, and yields whenever the worlds are to be compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import random
import types
import typing
import warnings

import numpy as np
import torch

import magpy
from magpy import _interp

FILE = "<fuzz>"


class Finding(typing.NamedTuple):
    """What is wrong with a program: the kind, at which step, and the difference in words."""

    kind: str
    step: int
    text: str


@dataclasses.dataclass
class Report:
    """What came of one program."""

    finding: Finding | None = None
    steps: int = 0
    captures: int = 0
    hits: int = 0
    calls: int = 0
    reasons: tuple[str, ...] = ()


def attempt(f, *args, **kwargs):
    """The result, or the exception."""
    try:
        return f(*args, **kwargs)
    except Exception as error:
        return error


def tensors_in(value, found=None):
    """The tensors in a result, in order."""
    found = [] if found is None else found
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for x in value:
            tensors_in(x, found)
    elif isinstance(value, dict):
        for x in value.values():
            tensors_in(x, found)
    return found


def backward(value):
    """Runs the autograd engine from every tensor of a result; gradients appear at the leaves."""
    total = None
    for t in tensors_in(value):
        if t.requires_grad and t.is_floating_point():
            total = t.sum() if total is None else total + t.sum()
    if total is None:
        return None
    return attempt(total.backward)


def poke(value):
    """Changes a result in place, as its owner may: no entry may notice."""
    with torch.no_grad():
        for t in tensors_in(value):
            if t.is_floating_point():
                attempt(t.add_, 1)
    if type(value) is list:
        value.append("poked")
    elif type(value) is dict:
        value["poked"] = True


# ---------------------------------------------------------------- what can be seen

ATOMS = (type(None), bool, int, str, bytes, type(...), range, slice, complex)
NAMED = (type, types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device)


class Picture:
    """A world as a flat list of words without addresses; `paths` names each if asked for."""

    def __init__(self, value, named):
        self.words = []
        self.paths = [] if named else None
        self._seen = {}
        self._storages = {}
        self._keep = []
        self._add(value, "")

    def _word(self, word, path):
        self.words.append(word)
        if self.paths is not None:
            self.paths.append(path)

    def _sub(self, path, key):
        return f"{path}{key}" if self.paths is not None else path

    def _add(self, v, path):
        t = type(v)
        if t is float:
            self._word(("float", math.copysign(1, v), repr(v)), path)
            return
        if t in ATOMS:
            self._word((t.__name__, v), path)
            return
        if isinstance(v, NAMED):
            name = getattr(v, "__qualname__", None) or getattr(v, "__name__", None) or str(v)
            self._word(("named", name), path)
            return
        if t is tuple or t is torch.Size:
            self._word((t.__name__, len(v)), path)
            for i, x in enumerate(v):
                self._add(x, self._sub(path, f"[{i}]"))
            return
        if t is _interp.Compiled:
            v, t = v._magpy_wrapped, types.FunctionType
        number = self._seen.get(id(v))
        if number is not None:
            self._word(("seen", number), path)
            return
        self._seen[id(v)] = len(self._seen)
        self._keep.append(v)  # no address may be used again
        self._word(("new", t.__name__), path)
        if isinstance(v, torch.Tensor):
            self._tensor(v, path)
        elif isinstance(v, BaseException):
            self._exception(v, path)
        else:
            self._object(v, path)

    def _tensor(self, v, path):
        storage = v.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self._storages))
        self._keep.append(storage)
        d = v.detach()
        self._word(("form", str(d.dtype), tuple(d.shape), d.stride(), d.storage_offset()), path)
        self._word(("storage", number), path)
        try:
            function = v.grad_fn
            name = function.name() if function is not None else None
            leaf = v.is_leaf
        except RuntimeError as error:
            # A view whose base was changed in a way that autograd forbids.
            name, leaf = str(error)[:60], False
        self._word(("autograd", v.requires_grad, leaf, name), path)
        self._word(("data", d.numpy().tobytes()), path)
        if leaf and v.grad is not None:
            self._add(v.grad, self._sub(path, ".grad"))
        if vars(v):
            self._add(vars(v), self._sub(path, ".__dict__"))

    def _exception(self, v, path):
        if isinstance(v, RecursionError):
            return  # where the stack ends is not the program's choice
        lines = []
        tb = v.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == FILE:
                lines.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        self._word(("raised", str(v), tuple(lines)), path)
        self._word(("context", type(v.__context__).__name__, type(v.__cause__).__name__), path)

    def _object(self, v, path):
        t = type(v)
        if isinstance(v, np.ndarray):
            self._word(("array", str(v.dtype), v.shape, v.tobytes()), path)
            return
        if isinstance(v, np.generic):
            self._word(("scalar", str(v.dtype), v.tobytes()), path)
            return
        if isinstance(v, types.FunctionType):
            self._function(v, path)
            return
        if isinstance(v, types.MethodType):
            self._word(("method", v.__func__.__qualname__), path)
            self._add(v.__self__, self._sub(path, ".__self__"))
            return
        if isinstance(v, dict):
            self._word(("keys", len(v)), path)
            for k, x in dict.items(v):
                self._add(k, self._sub(path, ".key"))
                self._add(x, self._sub(path, f"[{k!r:.20}]"))
        elif isinstance(v, (set, frozenset)):
            self._word(("set", tuple(sorted(map(repr, v)))), path)
        elif isinstance(v, (list, tuple)) or t.__name__ == "deque":
            self._word(("len", len(v), getattr(v, "maxlen", None)), path)
            for i, x in enumerate(v):
                self._add(x, self._sub(path, f"[{i}]"))
        elif isinstance(v, io.StringIO):
            self._word(("text", v.getvalue()), path)
            return
        elif isinstance(v, types.CellType):
            with contextlib.suppress(ValueError):
                self._add(v.cell_contents, self._sub(path, ".cell"))
            return
        for name in getattr(t, "__slots__", ()):
            if hasattr(v, name):
                self._add(getattr(v, name), self._sub(path, f".{name}"))
        own = getattr(v, "__dict__", None)
        if own:
            self._word(("attributes", len(own)), path)
            for k, x in own.items():
                self._word(("name", k), path)
                self._add(x, self._sub(path, f".{k}"))

    def _function(self, v, path):
        self._word(("function", v.__qualname__), path)
        self._add(v.__defaults__, self._sub(path, ".__defaults__"))
        self._add(v.__kwdefaults__, self._sub(path, ".__kwdefaults__"))
        for i, cell in enumerate(v.__closure__ or ()):
            self._add(cell, self._sub(path, f".__closure__[{i}]"))
        if vars(v):
            self._add(vars(v), self._sub(path, ".__dict__"))


# ---------------------------------------------------------------- a world

# Not seen by the comparison: the same in both worlds, or private to one.
_HIDDEN = {"__builtins__", "__warningregistry__", "steps", "target"}
_CLASS_NOISE = {
    "__module__",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__firstlineno__",
    "__slotnames__",
}
_KEPT = 3


def describe_class(cls):
    """What of a class can change."""
    if dataclasses.is_dataclass(cls):
        names = {n: x for n, x in vars(cls).items() if n not in _CLASS_NOISE and n[:2] != "__"}
    else:
        names = {n: x for n, x in vars(cls).items() if n not in _CLASS_NOISE}
    return {
        n: x
        for n, x in names.items()
        if not isinstance(x, (types.GetSetDescriptorType, types.MemberDescriptorType, property))
        and not isinstance(x, (staticmethod, classmethod))
    }


class World:
    """One run of a program."""

    def __init__(self, code, wrap, seed):
        self.stdout = io.StringIO()
        self.kept = []
        self.namespace = {
            "__name__": "fuzz_world",
            "attempt": attempt,
            "backward": backward,
            "poke": poke,
        }
        self._helpers = set(self.namespace)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        with contextlib.redirect_stdout(self.stdout):
            exec(code, self.namespace)
        self.roots = None
        self.save()
        self.compiled = wrap(self.namespace["target"])
        self.generator = self.namespace["steps"](self.compiled)

    def save(self):
        self.states = torch.get_rng_state(), random.getstate(), np.random.get_state()
        self.modes = torch.is_grad_enabled(), torch.get_default_dtype()
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)

    def load(self):
        torch.set_grad_enabled(self.modes[0])
        torch.set_default_dtype(self.modes[1])
        torch.set_rng_state(self.states[0])
        random.setstate(self.states[1])
        np.random.set_state(self.states[2])

    def step(self):
        """Goes on to the next yield; False at the end."""
        self.load()
        try:
            with contextlib.redirect_stdout(self.stdout):
                self.kept.append(next(self.generator))
        except StopIteration:
            return False
        except Exception as error:
            self.kept.append(error)  # and there is no further step
        finally:
            self.save()
        del self.kept[:-_KEPT]
        return True

    def seen(self):
        """All that the outside can see now."""
        names = self.namespace
        visible = {
            n: x
            for n, x in names.items()
            if n not in _HIDDEN
            and n not in self._helpers
            and not isinstance(x, (types.ModuleType, _interp.Compiled))
        }
        classes = {
            n: describe_class(x)
            for n, x in names.items()
            if isinstance(x, type) and x.__module__ == "fuzz_world"
        }
        states = self.states
        rng = (
            hash(states[0].numpy().tobytes()),
            hash(states[1]),
            hash(states[2][1].tobytes()),
            states[2][2],
        )
        result = self.kept[-1] if self.kept else None
        return {
            "result": result,
            "earlier": self.kept[:-1],
            "outside": visible,
            "classes": classes,
            "printed": self.stdout.getvalue(),
            "rng": rng,
            "modes": tuple(map(str, self.modes)),
        }


def first_difference(got, want):
    """The first difference of two worlds in words, or None."""
    a, b = Picture(got, False), Picture(want, False)
    if a.words == b.words:
        return None
    a, b = Picture(got, True), Picture(want, True)
    for x, y, p, q in zip(a.words, b.words, a.paths, b.paths, strict=False):
        if x != y:
            where = p if p == q else f"{p} / {q}"
            return f"{where}: {_short(x)} instead of {_short(y)}"
    return f"{len(a.words)} words instead of {len(b.words)}"


def _short(word):
    if word[0] == "data":
        raw = word[1]
        if len(raw) % 4 == 0 and len(raw) <= 64:
            return f"data {np.frombuffer(raw, np.float32).tolist()}"
    return f"{word!r:.300}"


def run(source, seed=0, wrap=None, limit=64):
    """Runs a program in both worlds.

    Args:
        wrap: what makes the compiled target; `magpy.compile` with the backend "eager" if None.
        limit: steps after which the program is left.
    """
    report = Report()
    code = compile(source, FILE, "exec", dont_inherit=True)
    made = []

    def compile_target(target):
        made.append(magpy.compile(target, backend="eager"))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = World(code, lambda f: f, seed)
        other = World(code, wrap or compile_target, seed)
        while report.steps < limit:
            more, more_other = eager.step(), other.step()
            if more != more_other:
                report.finding = Finding("differs", report.steps, "the number of steps")
                break
            if not more:
                break
            found = first_difference(other.seen(), eager.seen())
            if found is not None:
                report.finding = Finding("differs", report.steps, found)
                break
            report.steps += 1
    for c in made:
        stats = magpy.stats(c)
        report.captures += stats.captures
        report.hits += stats.hits
        report.calls += stats.hits + stats.misses
        report.reasons += tuple(stats.reasons)
        failures = [r for r in stats.reasons if r.startswith(("magpy failed", "the backend"))]
        if failures and report.finding is None:
            report.finding = Finding("internal", -1, failures[0])
    return report


def deterministic(source, seed=0):
    """Whether the program does the same in two eager worlds."""
    try:
        return run(source, seed, wrap=lambda f: f).finding is None
    except Exception:
        return False
