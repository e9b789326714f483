"""Which ParityBench files a run looks at, and how one of them becomes test cases.

Owns: the open and the held half, shards, filters, reading a checkout or a bare repository,
executing a file.
Does not own: running a case (`protocol`), processes (`worker`).  Called by `worker` and the command
line.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity_tests import standins

#: How often a file's import may fail for another missing name before it is given up.
MAX_IMPORT_REPAIRS = 60


@dataclass(frozen=True)
class Case:
    """One test case of a file: a module class, how to build it and how to build its arguments."""

    file: str
    index: int
    module_class: Any
    init_args: Callable[[], tuple[Sequence[Any], dict[str, Any]]]
    forward_args: Callable[[], tuple[Sequence[Any], dict[str, Any]]]

    @property
    def name(self) -> str:
        return getattr(self.module_class, "__name__", str(self.module_class))


def in_open_half(basename: str) -> bool:
    """Whether a file belongs to the half that development may look at."""
    return int(hashlib.sha1(basename.encode()).hexdigest(), 16) % 2 == 0


def wanted(basename: str, split: str) -> bool:
    """Whether a file belongs to `split`: open, held or all."""
    return split == "all" or in_open_half(basename) == (split == "open")


def list_files(
    root: Path, split: str, shard: tuple[int, int], name_filter: str | None = None
) -> list[Path]:
    """The test files of a run, in a fixed order.

    Args:
        root: a checkout of ParityBench, its `generated` directory, a directory of files in its
            style, or a bare git repository of it (of which only the wanted files are unpacked, into
            a temporary directory).
        split: open, held or all.
        shard: (i, n) with 1 <= i <= n: every n-th file, from the i-th.
        name_filter: only files whose name holds this text; a `file.py:Class` filter names the file
            before the colon.
    """
    if not root.exists():
        raise FileNotFoundError(f"--paritybench: {root} does not exist")
    directory = (
        _unpack(root, split) if (root / "HEAD").is_file() and not (root / ".git").exists() else root
    )
    if (directory / "generated").is_dir():
        directory = directory / "generated"
    files = [path for path in sorted(directory.glob("*.py")) if not path.name.startswith("_")]
    files = [path for path in files if wanted(path.name, split)]
    if name_filter:
        files = [
            path
            for path in files
            if name_filter.partition(":")[0] in path.stem or _mentions(path, name_filter)
        ]
    index, count = shard
    return files[index - 1 :: count]


def _mentions(path: Path, class_name: str) -> bool:
    return f"\n    ({class_name}," in path.read_text(errors="replace")


def _unpack(git_directory: Path, split: str) -> Path:
    target = Path(tempfile.mkdtemp(prefix="parity_tests_"))
    git = ["git", f"--git-dir={git_directory}"]
    listed = subprocess.run(
        [*git, "ls-tree", "--name-only", "HEAD", "generated/"], check=True, capture_output=True
    )
    names = [name for name in listed.stdout.decode().split() if wanted(Path(name).name, split)]
    archive = subprocess.run([*git, "archive", "HEAD", *names], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    return target


def load_cases(path: Path, stand_in: bool = True) -> list[Case]:
    """Execute a file and return its cases.

    Args:
        path: The file.
        stand_in: Whether to stand in for what it imports and cannot get. That lasts as long as the
            process; our own programs do without.

    Raises:
        Exception: whatever the file raises for another reason.
    """
    if stand_in:
        standins.prepare()
    code = compile(path.read_text(errors="replace"), str(path), "exec")
    for _ in range(MAX_IMPORT_REPAIRS):
        module = types.ModuleType(path.stem)
        module.__file__ = str(path)
        sys.modules[path.stem] = module
        argv = sys.argv
        try:
            exec(code, vars(module))
        except (ImportError, AttributeError) as error:
            if not stand_in or not standins.supply_missing(error):
                raise
            continue
        finally:
            sys.argv = argv
        return [
            Case(path.stem, index, *entry[:3])
            for index, entry in enumerate(getattr(module, "TESTCASES", []))
        ]
    raise ImportError(f"{path.name}: still missing a name after {MAX_IMPORT_REPAIRS} stand-ins")
