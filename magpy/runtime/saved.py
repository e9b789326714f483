"""Entries of a compiled callable in a file, and from a file.

Owns what of a compiled callable is saved, and how loaded entries come to serve.  Does not own the
form of a capture (magpy/saving/portable.py) nor of the file (magpy/saving/file.py).  Called by
magpy/api.py.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from magpy.backends import eager, process
from magpy.backends.code_alone import CodeAlone, put_together
from magpy.backends.direct_calls import directly
from magpy.backends.inductor import Inductor, is_there, of_environment
from magpy.backends.runner import EntryInfo, Runner
from magpy.errors import LoadError, Refusal, SaveError
from magpy.frames import signals
from magpy.guards.analysis import analyze
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.runtime import entry as entries
from magpy.runtime.compiled import Options
from magpy.runtime.figures import parts_of
from magpy.runtime.recovery import failed_of, recover_of
from magpy.saving import file
from magpy.saving.places import Mismatch
from magpy.saving.portable import Portable, thaw

_NOT_KEPT = "it was captured while magpy.config.saving was off"
_PLAIN = (bool, int, float, str, type(None))


class Graph(NamedTuple):
    """A compiled graph of a saved entry.

    Attributes:
        about: what tells that the graph of a loaded entry is the same.
        artifact: what loads it, without TorchInductor if that can be.
    """

    about: tuple[Any, ...]
    artifact: bytes | CodeAlone


class Saved(NamedTuple):
    """What `magpy.save` has written.

    Attributes:
        entries: how many entries are in the file.
        graphs: how many compiled graphs are.
        left: why others are not, a reason for each.
    """

    entries: int
    graphs: int
    left: tuple[str, ...]


class _Content(NamedTuple):
    options: Options
    packages: dict[str, str]
    entries: list[tuple[Portable, list[Graph | None]]]
    #: Those of TorchInductor; what they follow from if only the environment has set any.
    settings: tuple[str, ...]
    environment: tuple[str, ...] | None
    #: Of the graphs that TorchInductor loads.
    kernels: dict[str, bytes]


# ------------------------------------------------------------- saving


def _about(runner: Runner) -> tuple[Any, ...]:
    segment = runner.segment
    graph = segment.graph
    targets = [
        (n.op, n.target if isinstance(n.target, str) else getattr(n.target, "__name__", ""))
        for n in graph.graph.nodes
    ]
    memory = tuple(segment.memory[v] for v in (*segment.inputs, *segment.outputs))
    first = {m: i for i, m in reversed(list(enumerate(memory)))}
    return (
        *(graph.code, targets, len(runner.fixed), segment.draws, segment.native, segment.modes),
        *(tuple(first[m] if m else -1 for m in memory), segment.differentiates),
        tuple(v in segment.detached for v in segment.inputs),
    )


def _packages(portables: list[Portable]) -> dict[str, str]:
    """The versions of the packages that the entries name something of."""
    names = {
        str(row[1]).partition(".")[0]
        for p in portables
        for row in p.rows.rows
        if row[0] in ("module", "name") and row[1] is not None
    }
    found: dict[str, str] = {}
    for name in names - sys.stdlib_module_names:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def _checked(options: Options) -> Options:
    given = (options.options or {}).values()
    if not isinstance(options.backend, str) or not all(type(v) in _PLAIN for v in given):
        raise SaveError("a backend, or an option, that is an object cannot travel")
    return options


def _kernels(directory: Path) -> dict[str, bytes]:
    """The compiled kernels in TorchInductor's directory, by their place in it."""
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in directory.rglob("*.so")
        if p.is_file() and p.relative_to(directory).parts[0] != "precompiled_headers"
    }


def save(compiled: Any, path: Any) -> Saved:
    """Writes the entries of a compiled callable.

    Raises:
        SaveError: none can travel.
    """
    manager = compiled._magpy_options
    options = _checked(manager.options)
    left: list[str] = []
    kept: list[EntryInfo] = []
    others = [c for c in parts_of(compiled)[1] if c is not compiled]
    if manager.family is not None:
        others.append(manager.family.shared)
    for part in others:
        left += ["it is one of a part, or of several callables"] * len(part._magpy_entries)
    left += ["its graph is still being compiled"] * len(manager.waiting.pending)
    left += ["it is being measured"] * len(manager.waiting.trials)
    for info in (e.tag for e in compiled._magpy_entries):
        if isinstance(info.portable, Portable):
            kept.append(info)
        else:
            left.append(info.portable or _NOT_KEPT)
    if not kept:
        raise SaveError(f"nothing can be saved: {'; '.join(left) or 'there is no entry'}")
    runners = [r for info in kept for r in info.runners if r.backend is not eager]
    jobs = [r.job for r in runners if isinstance(r.job, process.Job)]
    left += [f"a graph: {r.job or 'it was never run'}" for r in runners if r.job not in jobs]
    answers: list[tuple[str, Any]] = []
    kernels: dict[str, bytes] = {}
    untouched: Any = None
    if jobs:
        with tempfile.TemporaryDirectory() as cache:
            answers, untouched = process.artifacts(jobs, cache)
            if any(type(answer) is bytes for _, answer in answers):
                kernels = _kernels(Path(cache))
    left += [f"a graph: {text}" for state, text in answers if state != "ok"]
    made = {
        id(job): text for job, (state, text) in zip(jobs, answers, strict=True) if state == "ok"
    }

    def graph(runner: Runner) -> Graph | None:
        artifact = made.get(id(runner.job))
        return None if artifact is None else Graph(_about(runner), artifact)

    backend = manager.backend
    settings = backend.key() if isinstance(backend, Inductor) else ()
    content = _Content(
        options,
        _packages([info.portable for info in kept]),
        [(info.portable, [graph(r) for r in info.runners]) for info in kept],
        settings,
        of_environment() if untouched is not None and settings[1:] == untouched else None,
        kernels,
    )
    file.write(path, pickle.dumps(content, protocol=5))
    return Saved(len(kept), len(made), tuple(left))


# ------------------------------------------------------------- loading


def read(path: Any) -> _Content:
    """What a file has, whose packages are the ones that are here.

    Raises:
        LoadError: they are not, or it is no such file.
    """
    content: _Content = pickle.loads(file.read(path))
    for name, version in content.packages.items():
        try:
            now = getattr(__import__(name), "__version__", None)
        except ImportError as e:
            raise LoadError(f"{path} is about the package {name}, which is not here") from e
        if str(now) != version:
            raise LoadError(f"{path} was saved with another {name}: {version} there, {now} here")
    return content


def _unpack(kernels: dict[str, bytes]) -> None:
    """Puts kernels where TorchInductor looks for them."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    root = Path(cache_dir())
    for name, data in kernels.items():
        target = root / name
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(made, 0o755)
        os.replace(made, target)


def load(compiled: Any, content: _Content, path: Any) -> list[str]:
    """Lets the entries of a file serve a compiled callable.

    Returns:
        Why some cannot.

    Raises:
        LoadError: none can.
    """
    manager = compiled._magpy_options
    backend, wrong = manager.backend, []
    if manager.options.key() != content.options.key():
        raise LoadError(f"{path} was saved with other options: {content.options}")
    graphs_fit = not isinstance(backend, Inductor)
    if isinstance(backend, Inductor) and any(g for _, gs in content.entries for g in gs):
        graphs_fit = not is_there() and content.environment == of_environment()
        graphs_fit = graphs_fit or backend.key() == content.settings
        if graphs_fit and content.kernels:
            _unpack(content.kernels)
    loaded = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        with signals.held(), unheard():
            for portable, graphs in content.entries:
                try:
                    new = _entry(compiled, portable, graphs if graphs_fit else [])
                    loaded.append(new)
                except (Mismatch, Refusal) as e:
                    wrong.append(str(e))
    finally:
        if collecting:
            gc.enable()
    if not loaded:
        raise LoadError(f"no entry of {path} fits this program: {'; '.join(wrong)}")
    if manager.family is not None:  # else what serves all of a family would, and not these
        manager.family.leave(compiled._magpy_wrapped)
    compiled._magpy_entries = [*compiled._magpy_entries, *loaded]
    return wrong


def _entry(compiled: Any, portable: Portable, graphs: list[Graph | None]) -> Any:
    manager = compiled._magpy_options
    capture, world = thaw(portable, compiled._magpy_wrapped)
    analysis = analyze(capture, world)
    if next(world.answers, None) is not None:
        raise Mismatch("the guard asks for less than it did")
    weak = weakref.ref(compiled)
    new, info = entries.build(capture, manager.backend, recover_of(weak), analysis)
    info.failed = failed_of(weak)
    info.portable = "it was loaded itself"
    for runner, graph in zip(info.runners, graphs, strict=False):
        if graph is not None and runner.backend is not eager and _about(runner) == graph.about:
            _use(runner, graph.artifact, manager.backend)
    return new


def _use(runner: Runner, artifact: bytes | CodeAlone, backend: Inductor) -> None:
    """Has a compiled graph run; where it cannot be loaded, its first run compiles it."""
    if isinstance(artifact, CodeAlone):
        with contextlib.suppress(ImportError, OSError):  # kernels are files for a moment
            runner.use(runner.finished(directly(put_together(artifact)), alone=True))
    else:
        runner.use(runner.finished(process.loaded(artifact, backend.patches())))


__all__ = ["Saved", "load", "read", "save"]
