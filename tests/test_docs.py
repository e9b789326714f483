"""The documents: pages made from the product are current, links lead somewhere, snippets run."""

import ast
import linecache
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import magpy
from magpy import backends

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def name_of(page):
    return str(page.relative_to(ROOT))


def generated(page):
    """What differs between a committed page and what the script makes of the product now."""
    script = ROOT / "scripts" / "generate_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check", page], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not torch.__version__.startswith("2.13."),
    reason="the page shows what CPython 3.11 and torch 2.13 do",
)
def test_the_walkthrough_shows_what_magpy_does_now():
    assert generated("walkthrough.md") == (0, ""), "run scripts/generate_docs.py"


@pytest.mark.slow
def test_the_api_page_says_what_the_docstrings_say():
    assert generated("api.md") == (0, ""), "run scripts/generate_docs.py"


def anchor_of(heading):
    """The anchor that Markdown gives a heading."""
    text = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"[\s-]+", "-", text)


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_repository_lead_somewhere(page):
    missing = []
    for target in re.findall(r"\]\(([^)\s]*[./#][^)\s]*)\)", without_code(page.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists():
            missing.append(target)
        elif anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            if anchor not in {anchor_of(heading) for heading in headings}:
                missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page):
    text = page.read_text()
    if page.name == "moved-files.md":
        text = re.sub(r"^\| [^|]* \|", "", text, flags=re.M)  # the old names
    named = set(re.findall(r"`((?:magpy|csrc|tests|scripts|docs|benchmarks)/[\w/.-]+)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_old_words_of_the_glossary_are_found_where_it_says():
    """Each name in the column of meanings: `name` or `Class.name`, in the file named beside it."""
    sources = {p: p.read_text() for p in [*ROOT.glob("magpy/**/*.py"), *ROOT.glob("csrc/**/*.h")]}
    missing = []
    rows = (DOCS / "glossary.md").read_text().partition("## Old words")[2].splitlines()
    for meaning in (row.split("|")[2] for row in rows if row.startswith("| ")):
        names = re.findall(r"`([^`]+)`", meaning)
        files = [ROOT / name for name in names if "/" in name]
        texts = [sources[file] for file in files] or list(sources.values())
        for name in names:
            cls, _, attribute = name.rpartition(".") if "/" not in name else ("", "", "")
            if cls:
                bodies = re.findall(rf"^class {cls}\b.*?(?=^\S|\Z)", "\n".join(texts), re.M | re.S)
                found = any(re.search(rf"^    (def )?{attribute}\b", b, re.M) for b in bodies)
            else:
                found = not attribute or any(re.search(rf"\b{attribute}\b", t) for t in texts)
            missing += [] if found else [name]
    assert missing == []


def snippets():
    """The blocks marked `python` of each page for users; those marked `py` are not run."""
    for page in [ROOT / "README.md", *sorted(DOCS.glob("guide/*.md"))]:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
        if blocks:
            yield pytest.param(blocks, id=page.stem)


def shown(value, text):
    assert str(value) == text


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("blocks", list(snippets()))
def test_snippets_run_and_give_what_they_say(blocks, monkeypatch):
    """The blocks of a page run one after the other; `expression  # -> text` is compared."""
    monkeypatch.setattr(backends, "resolve", lambda *_: backends.eager)
    monkeypatch.setattr(magpy.config, "regions", True)  # as users have it
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    names = {
        **{"torch": torch, "magpy": magpy, "shown": shown, "__name__": "snippets"},
        **{"model": torch.nn.Sequential(*layers), "x": torch.randn(4, 3)},
    }
    for number, block in enumerate(blocks):
        code = re.sub(r"^(\s*)(\S.*?)  # -> (.*)$", r'\1shown((\2), r"""\3""")', block, flags=re.M)
        file = f"<snippet {number} of {block!r}>"
        monkeypatch.setitem(linecache.cache, file, (len(code), None, code.splitlines(True), file))
        exec(compile(code, file, "exec"), names)
    assert any("magpy." in block for block in blocks)
    magpy.reset()


def _large():
    """Files with more lines than a reader takes in, and the classes and functions in them."""
    for path in (*ROOT.glob("magpy/**/*.py"), *ROOT.glob("csrc/**/*.cpp")):
        text = path.read_text()
        if text.count("\n") > 700:
            yield path.name, path.stem
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(text)):
            most = {ast.ClassDef: 400, ast.FunctionDef: 60, ast.AsyncFunctionDef: 60}.get(
                type(node)
            )
            if most is not None and node.end_lineno - node.lineno >= most:
                yield path.name, node.name


def test_what_is_large_is_named_with_its_reason():
    table = (ROOT / "docs/internals/special-cases.md").read_text().partition("## Large modules")[2]
    large = list(_large())
    assert large
    for file, name in large:
        rows = [row for row in table.splitlines() if file in row]
        assert rows, f"{file} ({name}) is in no row"
        assert file.startswith(name) or any(name in r for r in rows), (file, name)
