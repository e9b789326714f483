"""The rooms of magpy import in one direction: the order of docs/ARCHITECTURE.md."""

import ast
import re
from pathlib import Path

import pytest

import magpy

ROOT = Path(magpy.__file__).parent

#: Each room imports only from itself, from those before it and from the ground.
ROOMS = [
    "objects",
    "frames",
    "models",
    "ir",
    "instrument",
    "shapes",
    "unwatched",
    "capture",
    "guards",
    "replay",
    "backends",
    "saving",
    "runtime",
]
#: Modules beside the rooms that import no room.
GROUND = {"_interp", "_tensor", "cache", "config", "errors", "faults"}
#: Modules beside the rooms that users call: no room imports them.
TOP = {"__init__", "__main__", "api", "explaining"}

#: Imports against the order, as "module -> module", each with its reason.
UPWARD: dict[str, str] = {}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts), path


def rank(module):
    first = module.split(".")[0]
    if first in GROUND:
        return -1
    return len(ROOMS) if first in TOP else ROOMS.index(first)


def imports(path, known):
    """Modules of magpy that a file imports anywhere in it, also for its types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        for name in names:
            if name.startswith("magpy."):
                inner = name.removeprefix("magpy.")
                yield inner if inner in known else inner.rpartition(".")[0] or "__init__"


def upward():
    files = dict(modules())
    known = {*files, *GROUND}
    for module, path in files.items():
        for target in imports(path, known):
            if rank(target) > rank(module):
                yield f"{module} -> {target}"


def test_a_module_that_names_its_only_caller_has_no_other():
    files = dict(modules())
    known = {*files, *GROUND}
    callers: dict[str, set[str]] = {}
    for module, path in files.items():
        for target in {*imports(path, known)} - {module}:
            callers.setdefault(target, set()).add(module)
    said = {}
    for module, path in files.items():
        text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
        for named in re.findall(r"\(magpy/(\S+)\.py, the only caller", text):
            said[module] = {named.replace("/", ".")}
    assert said
    assert said == {module: callers[module] for module in said}


def test_each_module_is_in_a_room():
    assert {m.split(".")[0] for m, _ in modules()} <= {*ROOMS, *GROUND, *TOP}


def test_each_room_has_a_page():
    for room in ROOMS:
        text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
        assert text is not None
        assert "Owns" in text


@pytest.mark.parametrize("module", ["objects.types", "runtime.entry", "errors", "api"])
def test_the_modules_are_found(module):
    assert module in dict(modules())


def test_an_upward_import_is_seen(tmp_path):
    path = tmp_path / "low.py"
    path.write_text("def f():\n    from magpy.runtime import entry\n    import magpy.api\n")
    found = list(imports(path, {"runtime.entry", "api"}))
    assert found == ["runtime.entry", "api"]
    assert all(rank(m) > rank("objects.types") for m in found)


def test_rooms_import_in_one_direction():
    assert set(upward()) == set(UPWARD)
    assert len(UPWARD) <= 10
    assert all(UPWARD.values())


def test_no_circle_is_hidden_behind_type_checking():
    hidden = {
        module
        for module, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("magpy.")
        if module not in ("__init__", "objects.types")  # a lazy face; a function's name for mypy
    }
    assert hidden == set()
