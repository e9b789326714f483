"""The file of saved entries: a header that says who can read it, a checksum, the content.

Owns the layout, and what must be equal where entries are loaded: versions, and the processor that
graphs are compiled for.  Does not own the content (magpy/runtime/saved.py).  The content is a
pickle, which runs code where it is loaded: the header is looked at before.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import magpy
from magpy.errors import LoadError

_MAGIC = b"magpy entries\n"
_FORMAT = 1
_LENGTH = 8


@functools.cache
def _processor() -> str:
    """A hash of what the processor can do: kernels are compiled for this very one."""
    told = [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        names = ("model name", "flags", "Features", "CPU part", "cpu family", "model", "stepping")
        told += [line for line in lines if line.partition("\t")[0].strip(": \t") in names]
    except OSError:
        told.append(platform.processor())
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def environment() -> dict[str, Any]:
    """What must be equal in the process that loads."""
    return {
        "format": _FORMAT,
        "magpy": magpy.__version__,
        "Python": sys.version,
        "torch": f"{torch.__version__} ({torch.version.git_version})",
        "numpy": np.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def write(path: Any, content: bytes) -> None:
    """Writes a file, as a whole or not at all."""
    header = json.dumps(environment()).encode()
    parts = (
        *(_MAGIC, len(header).to_bytes(_LENGTH, "little"), header),
        *(len(content).to_bytes(_LENGTH, "little"), hashlib.sha256(content).digest(), content),
    )
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(parts)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def read(path: Any) -> bytes:
    """The content of a file, which was written by the same versions for the same processor.

    Raises:
        LoadError: it is no such file, or not whole.
        OSError: it cannot be read.
    """
    data = memoryview(Path(path).read_bytes())
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        if len(data) - at < count:
            raise LoadError(f"{path} is not whole")
        at += count
        return bytes(data[at - count : at])

    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise LoadError(f"{path} is no file of magpy.save")
    at = len(_MAGIC)
    header = take(int.from_bytes(take(_LENGTH), "little"))
    try:
        known = json.loads(header)
    except ValueError as e:
        raise LoadError(f"{path} is not whole") from e
    for name, now in environment().items():
        if not isinstance(known, dict) or known.get(name) != now:
            was = known.get(name) if isinstance(known, dict) else None
            told = "" if name == "processor" else f": {was} there, {now} here"
            raise LoadError(f"{path} was saved with another {name}{told}")
    count = int.from_bytes(take(_LENGTH), "little")
    digest = take(hashlib.sha256().digest_size)
    content = take(count)
    if at != len(data) or hashlib.sha256(content).digest() != digest:
        raise LoadError(f"{path} is not as it was written")
    return content


__all__ = ["environment", "read", "write"]
