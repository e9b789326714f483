"""The line that a refusal names, and the expression that fixes a number: the innermost ones."""

from __future__ import annotations

import collections
import textwrap
import traceback

import pytest
import torch

import magpy
from magpy.frames.locations import Place, place_of_program


def _reason(f):
    c = magpy.compile(f, backend="eager")
    c(torch.ones(2))
    (reason,) = magpy.stats(c).reasons
    return reason


def _line(f, offset):
    return f"{f.__code__.co_filename}:{f.__code__.co_firstlineno + offset} ({f.__name__})"


def test_a_function_of_the_standard_library_is_not_the_users_line():
    def look(t):
        t = t + 1
        return len(list(traceback.walk_stack(None))), t

    assert _line(look, 2) in _reason(look)


def test_a_function_that_the_standard_library_calls_back_is_the_users_line():
    class Words(collections.UserDict):
        def __missing__(self, key):
            return magpy_unknown(key)

    @magpy.disable
    def magpy_unknown(key):
        return key

    def look(t):
        return t + Words()[3]

    assert _line(Words.__missing__, 1) in _reason(look)


def test_a_library_beside_the_standard_one_is_the_users(tmp_path):
    file = tmp_path / "site-packages" / "theirs.py"
    file.parent.mkdir()
    text = textwrap.dedent(
        """
        def look(t, f):
            return f(t)
        """
    )
    scope = {"__name__": "theirs"}
    exec(compile(text, str(file), "exec"), scope)
    disabled = magpy.disable(abs_of)
    assert f"{file}:3 (look)" in _reason(lambda t: scope["look"](t, disabled))


def abs_of(t):
    """Something to be disabled."""
    return t.abs()


def test_a_call_that_has_no_line_of_the_user_names_the_line_that_makes_it():
    c = magpy.compile(traceback.extract_stack, backend="eager")

    def caller():
        return c()

    caller()
    (reason,) = magpy.stats(c).reasons
    assert _line(caller, 1) in reason


def test_the_place_is_the_innermost_expression_of_the_program(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def f(place):\n    return 'é', place(), 1\n")
    space = {"__name__": "model"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    _, place, _ = space["f"](place_of_program)
    assert str(place) == f"place() at {path}:2"


def test_a_place_without_columns_is_shown_as_the_whole_line(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("a = 1\n    b = a + 1\n")
    assert str(Place(str(path), 2, None, None)) == f"b = a + 1 at {path}:2"
    assert str(Place(str(path), 2, 8, 13)) == f"a + 1 at {path}:2"
    assert str(Place("nowhere.py", 7, 1, 2)) == "nowhere.py:7"


@pytest.mark.parametrize(
    ("text", "decides"),
    [
        ("i == 0", True),
        ("not i", True),
        ("i", True),
        ("0 < i and j", True),
        ("layers[i]", False),
        ("range(i)", False),
        ("x.view(i, -1)", False),
        ("x = (", False),
    ],
)
def test_where_a_way_is_chosen_and_where_a_number_is_used(tmp_path, text, decides):
    path = tmp_path / "ways.py"
    path.write_text(text + "\n")
    assert Place(str(path), 1, None, None).decides() is decides
