"""Where the caches of TorchInductor and Triton are on disk, how large, and away with them.

magpy has no cache of its own on disk.  Owns nothing but the knowledge of what in TorchInductor's
directory is a cache: nothing else is counted or removed there.  Used as `magpy.cache`; what makes a
second process start warm is in docs/caches.md.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

# What TorchInductor makes in its directory: kernels and wrappers lie in folders of two characters.
_CODE = re.compile(r"[a-z0-9]{2}|precompiled_headers|locks|unhashed_kernel_inputs|cache|dynamo")
_PARTS = {"graphs": "fxgraph", "autograd": "aotautograd"}


@dataclass(frozen=True)
class Part:
    """A part of the caches.

    Attributes:
        path: the directory that it is in.
        bytes: what its files take.
        files: how many they are.
    """

    path: Path
    bytes: int
    files: int


@dataclass(frozen=True)
class Info:
    """The on-disk caches of this user, as this process finds them.

    Attributes:
        graphs: compiled graphs, found by the graph that autograd made (TorchInductor's FX graph
        cache). autograd: results of AOTAutograd, found by the graph as it was captured. code:
        kernels and the code that calls them, compiled, and precompiled headers. triton: Triton's
        kernels for accelerators.
    """

    graphs: Part
    autograd: Part
    code: Part
    triton: Part

    @property
    def bytes(self) -> int:
        """All parts together."""
        return sum(p.bytes for p in (self.graphs, self.autograd, self.code, self.triton))


def _inductor() -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir())


def _triton() -> Path:
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given) if given else _inductor() / "triton"


def _measure(path: Path, roots: list[Path]) -> Part:
    size = files = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                try:
                    size += os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:  # another process is at work
                    continue
                files += 1
    return Part(path, size, files)


def _code(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if _CODE.fullmatch(p.name) and not p.is_symlink()]


def info() -> Info:
    """Where the caches are and how large."""
    inductor = _inductor()
    graphs, autograd = (inductor / name for name in _PARTS.values())
    return Info(
        _measure(graphs, [graphs]),
        _measure(autograd, [autograd]),
        _measure(inductor, _code(inductor)),
        _measure(_triton(), [_triton()]),
    )


def clear() -> int:
    """Removes the caches; what is compiled in this process goes on working.

    Returns:
        How many bytes there were.
    """
    before = info()
    inductor = _inductor()
    for path in (before.graphs.path, before.autograd.path, _triton(), *_code(inductor)):
        shutil.rmtree(path, ignore_errors=True)
    if "torch._inductor.utils" in sys.modules:
        # What it remembers of files that are gone.
        from torch._inductor.utils import clear_caches

        clear_caches()
    return before.bytes
