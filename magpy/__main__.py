"""The command line: `python -m magpy doctor`.

Owns the report on what is installed and what works.  Does not own any of it.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any


def _say(ok: bool, what: str, detail: str = "") -> bool:
    sys.stdout.write(
        f"  {'ok     ' if ok else 'MISSING'}  {what}{': ' + detail if detail else ''}\n"
    )
    return ok


def _version(module: str) -> str:
    try:
        return str(__import__(module).__version__)
    except Exception as e:  # noqa: BLE001 - whatever is wrong with it is what is to be told
        return f"cannot be imported ({type(e).__name__}: {e})"


def _backend_works(name: str) -> tuple[bool, str]:
    import torch

    import magpy

    def small(x: Any, y: Any) -> Any:
        return torch.relu(x @ y) + 1

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    start = time.perf_counter()
    try:
        compiled = magpy.compile(small, backend=name)
        for _ in range(2):
            if not torch.allclose(compiled(x, y), small(x, y), atol=1e-5):
                return False, "gives another result than eager"
    except Exception as e:  # noqa: BLE001 - as above
        return False, f"{type(e).__name__}: {e}"
    stats = magpy.stats(compiled)
    if stats.hits != 1:
        return False, "; ".join(stats.reasons) or "the second call was not served"
    return True, f"{time.perf_counter() - start:.1f} s"


def doctor() -> int:
    """Prints what is installed, compiles a small function with each backend, tells what is missing.

    Returns:
        0 when magpy can be used here, else 1.
    """
    import magpy

    out = sys.stdout.write
    out("magpy " + magpy.__version__ + "\n")
    good = _say(
        magpy.unsupported is None,
        f"CPython {platform.python_version()} on {platform.machine()}",
        magpy.unsupported or "",
    )
    for module in ("torch", "numpy", "networkx"):
        found = importlib.util.find_spec(module) is not None
        good = _say(found, module, _version(module) if found else f"pip install {module}") and good
    for module in ("transformers", "matplotlib", "hypothesis", "triton"):
        found = importlib.util.find_spec(module) is not None
        out(
            f"  {'ok     ' if found else 'absent '}  {module} "
            f"(optional){': ' + _version(module) if found else ''}\n"
        )
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    _say(
        compiler is not None, "C++ compiler", compiler or "inductor needs one on a CPU: install g++"
    )
    if importlib.util.find_spec("torch") is None or magpy.unsupported is not None:
        return 1
    import torch

    if torch.cuda.is_available():
        _say(True, "GPU", torch.cuda.get_device_name(0))
    else:
        out("  absent   GPU: models run on the CPU\n")
    out("backends\n")
    names: list[str] = ["eager", "aot_eager", "inductor"]
    from magpy import backends

    others = [n for n in backends.known() if n not in names]
    for name in names:
        ok, detail = _backend_works(name)
        good = _say(ok, name, detail) and good
    out(f"  known    {', '.join(others)}\n")
    out(
        "magpy can be used here\n"
        if good
        else "something that magpy needs is missing or does not work: see above\n"
    )
    return 0 if good else 1


_COMMANDS: dict[str, Callable[[], int]] = {"doctor": doctor}


def main(argv: list[str]) -> int:
    """Runs a command."""
    if len(argv) != 1 or argv[0] not in _COMMANDS:
        sys.stderr.write(f"usage: python -m magpy {{{','.join(_COMMANDS)}}}\n")
        return 2
    return _COMMANDS[argv[0]]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
