"""Writes the pages of docs/ that are made from the product: walkthrough.md and api.md.

    python scripts/generate_docs.py            # writes both
    python scripts/generate_docs.py --check    # exits with 1 and a diff where a page is not current

Owns how the event log, the reference graph, the guard and the docstrings are shown.  Does not own
what they say: it runs magpy and prints what came of it, addresses and paths left out.  Called by
tests/test_docs.py.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import magpy  # noqa: E402
from magpy import _interp  # noqa: E402
from magpy.capture import session  # noqa: E402
from magpy.guards.analysis import analyze  # noqa: E402
from magpy.ir import printer  # noqa: E402


# The program of the walkthrough: it reads a global, a class attribute and an item of a dict, looks
# at data, changes a list that others hold, and returns a new object.
class Settings:  # noqa: D101 - shown as it is
    scale = 2.0


settings = Settings()
seen: list[str] = []


def scaled(x, weights):  # noqa: D103
    y = x * weights["w"] * settings.scale
    if y.sum() > 0:
        seen.append("positive")
    return {"y": y, "rows": x.shape[0]}


PROGRAM = """\
class Settings:
    scale = 2.0


settings = Settings()
seen = []


"""

#: How much of a repr is shown.
SHOWN = 60


def arguments() -> tuple[Any, ...]:
    """What the program is called with."""
    return torch.ones(2, 3), {"w": torch.ones(3)}


def name(obj: Any) -> str:
    """An object in the words of the walkthrough, the same in each process."""
    if obj is _interp.ABSENT:
        return "absent"
    if obj is globals():
        return "globals of the program"
    if obj is vars(settings):
        return "settings.__dict__"
    if obj is settings:
        return "settings"
    if obj is seen:
        return "seen"
    if isinstance(obj, types.CodeType):
        return f"code of {obj.co_qualname}"
    if isinstance(obj, torch.Tensor):
        return f"tensor{list(obj.shape)}"
    if isinstance(obj, dict) and obj.get("w") is not None:
        return "weights"
    if isinstance(obj, type):
        return f"class {obj.__name__}"
    if isinstance(obj, types.FunctionType):
        return f"function {obj.__qualname__}"
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(obj))
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def event_line(event: tuple[str, Any, Any, Any]) -> str:
    """One event: its kind, the object, the key and the value."""
    kind, obj, key, value = event
    if kind == "protocols":
        return f"{kind:<10} {name(obj)}: {len(value)} special methods"
    if kind == "func":
        return f"{kind:<10} {name(obj)}: its code and defaults"
    if kind == "link_dict":
        return f"{kind:<10} {name(obj)} has the dict {name(value)}"
    if kind == "object":
        return f"{kind:<10} {name(obj)}"
    if kind == "type":
        return f"{kind:<10} {name(obj)} -> {name(value)}"
    return f"{kind:<10} {name(obj)}, {key!r} -> {name(value)}"


def reference_lines(graph: Any) -> list[str]:
    """The reads of the reference graph, one a line: the object, the read, what it gave."""

    def node(key: Any) -> str:
        data = graph.nodes[key]
        if key == id(globals()):
            return "globals of the program"
        return str(data["label"])

    lines = [f"{node(a)} --{d['label']}--> {node(b)}" for a, b, d in graph.edges(data=True)]
    for key, data in graph.nodes(data=True):
        lines += [f"{node(key)}: {text}" for text in data.get("reads", ())]
    return lines


def guard_lines(analysis: Any) -> list[str]:
    """The checks of a guard that walk from the arguments, and how many anchors it has."""

    def part(v: Any) -> str:
        return f"({', '.join(map(part, v))})" if type(v) is tuple else name(v)

    lines = [" ".join([check[0], *map(part, check[1:])]) for check in analysis.checks]
    for section, records in sorted(analysis.anchors.items()):
        count = len(records) if isinstance(records, list) else 1
        lines += [f"anchors, {section}: {count}"] if count else []
    return lines


def block(text: str, language: str = "text") -> str:
    """A block of code in Markdown."""
    return f"```{language}\n{text.strip()}\n```"


def walkthrough() -> str:
    """The page that carries one function through."""
    outcome = session.run(scaled, arguments(), {})
    capture = outcome.capture
    assert capture is not None, outcome.refusal or outcome.failure
    told = magpy.explain(scaled, *arguments())
    assert told.captured, told.reason
    source = re.sub("  # noqa.*", "", inspect.getsource(scaled))
    first = scaled.__code__.co_firstlineno
    offset = first - len(PROGRAM.splitlines()) - 1

    def placed(text: str) -> str:
        """The text with the lines of the program as it is shown."""
        return re.sub(
            r"# \S*generate_docs\.py:(\d+)", lambda m: f"# program.py:{int(m[1]) - offset}", text
        )

    parts = {
        "VERSIONS": f"CPython {sys.version_info[0]}.{sys.version_info[1]} and torch "
        f"{torch.__version__.split('+')[0]}",
        "PROGRAM": block(PROGRAM + source, "python"),
        "EVENTS": block("\n".join(event_line(e) for e in capture.log)),
        "STEPS": block(placed(printer.text(capture.record.steps))),
        "REFERENCES": block("\n".join(reference_lines(told.reference_graph))),
        "SUMMARY": block(told.guard_summary),
        "GUARDS": block("\n".join(guard_lines(analyze(capture)))),
        "GRAPH": block("\n".join(g.strip() for g in told.graphs), "python"),
        "MOCK": block(placed(told.mock), "python"),
    }
    text = (DOCS / "walkthrough.in").read_text()
    return re.sub(r"@(\w+)@", lambda m: parts[m[1]], text)


#: The sections of the API page, in order.
API = {
    "Compiling": ["compile", "disable"],
    "Looking": ["stats", "Stats", "explain", "explaining.Explanation"],
    "Saying what a function does": ["pure", "effect", "allow_in_graph"],
    "Forgetting": ["reset"],
    "Entries in a file": ["save", "load"],
    "Errors and warnings": [
        *("CaptureError", "OptionError", "SaveError", "LoadError", "MagpyWarning"),
    ],
    "Caches on disk": ["cache.info", "cache.clear"],
}

_SECTION = re.compile(r"(Args|Returns|Raises|Attributes|Yields):$")
_ENTRY = re.compile(r"    (\w[\w.*]*): (.*)$")


def docstring(text: str) -> str:
    """A Google-style docstring as Markdown: the entries of its sections become lists."""
    lines: list[str] = []
    section = False
    for line in inspect.cleandoc(text).splitlines():
        if _SECTION.match(line):
            section = True
            lines += [f"**{line.removesuffix(':')}**", ""]
        elif section and (match := _ENTRY.match(line)):
            lines.append(f"- `{match[1]}`: {match[2]}")
        elif section and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        elif section and line.startswith("    "):
            lines.append(line.strip())
        else:
            lines.append(line)
    return "\n".join(lines)


def find(dotted: str) -> Any:
    """What a dotted name in magpy stands for."""
    import importlib

    module, _, attribute = dotted.rpartition(".")
    home = importlib.import_module(f"magpy.{module}") if module else magpy
    return getattr(home, attribute)


def parameters(f: Any) -> str:
    """The parameters of a function, each on a line of its own where there are many."""
    found: list[str] = []
    starred = False
    for parameter in inspect.signature(f).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            found.append("*")
        found.append(re.sub(r": '([^']*)'", r": \1", str(parameter)))
    joined = ", ".join(found)
    return joined if len(joined) < SHOWN else "\n    " + ",\n    ".join(found) + ",\n"


def entry(dotted: str) -> str:
    """The section of one public name."""
    value = find(dotted)
    shown = "magpy.explain's result" if dotted == "explaining.Explanation" else f"magpy.{dotted}"
    title = f"### `{shown}`" if dotted != "explaining.Explanation" else "### `Explanation`"
    lines = [title, ""]
    if inspect.isfunction(value):
        signature = f"{shown}({parameters(value)})"
        lines += [block(signature, "py"), ""]
    return "\n".join([*lines, docstring(value.__doc__ or ""), ""])


def settings_of_config() -> str:
    """The settings of `magpy.config` with the texts below them."""
    source = (ROOT / "magpy" / "config.py").read_text()
    pattern = re.compile(r'^(\w+): ([^=\n]+) = (.*?)\n"""(.*?)"""', re.MULTILINE | re.DOTALL)
    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for match in pattern.finditer(source):
        default = "" if "\n" in match[3] or "(" in match[3] else f"`{match[3]}`"
        lines.append(f"| `{match[1]}` | {default} | {' '.join(match[4].split())} |")
    return "\n".join(lines)


def api() -> str:
    """The page of the public names."""
    lines = ["# API", "", "Made from the docstrings by `scripts/generate_docs.py`.", ""]
    for title, names in API.items():
        lines += [f"## {title}", "", *(entry(dotted) for dotted in names)]
    lines += ["## Settings: `magpy.config`", "", settings_of_config(), ""]
    return "\n".join(lines)


PAGES = {"walkthrough.md": walkthrough, "api.md": api}


def main() -> int:
    """Writes the pages, or compares them with what they should be."""
    parser = argparse.ArgumentParser(description="pages of docs/ that are made from the product")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; all if none is given")
    options = parser.parse_args()
    status = 0
    for page in options.pages or PAGES:
        text = PAGES[page]().rstrip() + "\n"
        path = DOCS / page
        if not options.check:
            path.write_text(text)
            continue
        before = path.read_text() if path.exists() else ""
        if before != text:
            status = 1
            sys.stdout.writelines(
                difflib.unified_diff(
                    before.splitlines(True), text.splitlines(True), f"docs/{page}", "made now"
                )
            )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
