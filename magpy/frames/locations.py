"""Where in the user's program something happens.

Owns the search for the line that a refusal names, and for the expression that makes a number one
that later calls must have.  Does not own refusals (magpy/errors.py).  Called by whatever refuses a
capture, and by magpy/shapes/symbols.py.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import os
import sys
import types
from typing import Any, NamedTuple

from magpy import _interp
from magpy.errors import Refusal
from magpy.objects.types import isinstance

_STDLIB = os.path.dirname(os.__file__) + os.sep
_LONGEST = 80  # text of an expression
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)


def is_own(frame: types.FrameType) -> bool:
    """Whether a frame is magpy's."""
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.startswith("magpy") and name[5:6] in (".", "")


def is_users(frame: types.FrameType) -> bool:
    """Whether a frame is of a program, and not of Python's own library or torch."""
    return is_users_code(frame.f_code, frame.f_globals)


def is_users_code(code: types.CodeType, names: dict[str, Any]) -> bool:
    """Whether code is of a program, by its file and by the globals that it runs with."""
    return is_users_file(code.co_filename, names)


def is_users_file(file: str, names: dict[str, Any]) -> bool:
    """Whether code of a file, with its globals, is of a program."""
    name = names.get("__name__", "")
    if (isinstance(name, str) and name.partition(".")[0] == "torch") or file.startswith("<frozen"):
        return False
    return not file.startswith(_STDLIB) or file.startswith(_INSTALLED, len(_STDLIB))


def in_package(where: str) -> bool:
    """Whether a file, or a place "FILE:LINE (FUNCTION)", is in a package beside torch."""
    installed = any(os.sep + name in where for name in _INSTALLED)
    return installed and not any(f"{os.sep}{name}torch{os.sep}" in where for name in _INSTALLED)


def _users_frame(skip: int) -> types.FrameType | None:
    """The innermost frame of the user's program; without any, of what is not magpy's."""
    frame: types.FrameType | None = sys._getframe(skip)
    found = None
    while frame is not None:
        if not is_own(frame):
            found = found or frame
            if is_users(frame):
                return frame
        frame = frame.f_back
    return found


def where_text(skip: int = 1) -> str:
    """The innermost line of the user's program: "file:line (function)".

    It may be the line that calls the compiled callable, when that is torch's or of Python's own
    library; without any such line it is the library's.
    """
    found = _users_frame(skip + 1)
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})" if found else ""


class Place(NamedTuple):
    """An expression in the user's program.

    Attributes:
        file, line: where it is.
        start, end: its columns in the line, as offsets in UTF-8; None where they are not known.
    """

    file: str
    line: int
    start: int | None
    end: int | None

    def __str__(self) -> str:
        """What stands there, and where: "range(len(x)) at model.py:31"."""
        text = self._text()
        text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
        return f"{text} at {self.file}:{self.line}" if text else f"{self.file}:{self.line}"

    def _text(self) -> str:
        line = linecache.getline(self.file, self.line)
        return line.encode()[self.start : self.end].decode(errors="replace").strip()

    def decides(self) -> bool:
        """Whether a way is chosen there (`i == 0`, `if n`): a number is not used in itself."""
        try:
            found = ast.parse(self._text(), mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return isinstance(found, (ast.Compare, ast.BoolOp, ast.Name)) or (
            isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.Not)
        )


def place_of_program() -> Place | None:
    """The innermost expression of the user's program that is being evaluated.

    None if the run that is watched is in a library's code: to name the line that calls the compiled
    callable would help nobody.
    """
    frame = _users_frame(2)
    if frame is None or _interp.is_caller(frame):
        return None
    unit = 2  # bytes of an instruction
    line, last, start, end = next(
        itertools.islice(frame.f_code.co_positions(), frame.f_lasti // unit, None),
        (None,) * 4,
    )
    if line is None or line != last:
        start = end = None
    return Place(frame.f_code.co_filename, line or frame.f_lineno, start, end)


def refuse(reason: str, remedy: str = "") -> Refusal:
    """A refusal at the user's current line."""
    return Refusal(reason, where_text(2), remedy)


__all__ = [
    "Place",
    "in_package",
    "is_own",
    "is_users",
    "is_users_code",
    "place_of_program",
    "refuse",
    "where_text",
]
