"""What csrc/interp asks the handler is what `_interp.Handler` says, and the handler answers it."""

import ast
import re
from pathlib import Path

import pytest

import magpy
from magpy import _interp
from magpy.capture.python.callbacks import Handler

ROOT = Path(magpy.__file__).parent
SOURCES = Path(__file__).parents[2] / "csrc" / "interp"
#: The functions of csrc/interp that ask by a name which they are given, and how they are called.
ASKING = r"\b(?:ask|derive|operated|handler_calls)\([^;{]*?[;{]"


def source():
    return "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.cpp")))


def asked():
    text = source()
    calls = re.findall(ASKING, text) + re.findall(r"->handler\.get\(\), (\"\w+\")", text)
    return {name for call in calls for name in re.findall(r"\"(\w+)\"", call)}


def declared():
    tree = ast.parse((ROOT / "_interp.pyi").read_text())
    protocol = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Handler")
    return {n.name: n for n in protocol.body if isinstance(n, ast.FunctionDef)}


def test_protocol_lists_what_csrc_asks():
    assert asked() == set(declared())


def test_other_calls_of_the_handler_are_given_the_name():
    # `handler_calls`, whose callers are searched for names.
    assert len(re.findall(r"->handler\.get\(\), (?!\")\w+", source())) == 1


def test_protocol_documents_each_method():
    assert [n for n, f in declared().items() if not ast.get_docstring(f)] == []


@pytest.mark.parametrize("name", sorted(declared()))
def test_handler_answers(name):
    assert callable(getattr(Handler(), name))


@pytest.mark.parametrize("name", [n for n in vars(_interp.Session) if not n.startswith("__")])
def test_session_is_described(name):
    tree = ast.parse((ROOT / "_interp.pyi").read_text())
    session = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Session")
    names = {getattr(n, "name", None) for n in session.body}
    names |= {n.target.id for n in session.body if isinstance(n, ast.AnnAssign)}
    assert name in names
