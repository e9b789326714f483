"""Where in the user's program something happens.

Owns the search for the line that a refusal names.  Does not own refusals (magpy/errors.py).  Called
by whatever refuses a capture.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from magpy.errors import Refusal
from magpy.objects.types import isinstance

_STDLIB = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)


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


def where_text(skip: int = 1) -> str:
    """The innermost line of the user's program: "file:line (function)".

    It may be the line that calls the compiled callable, when that is torch's or of Python's own
    library; without any such line it is the library's.
    """
    frame: types.FrameType | None = sys._getframe(skip)
    found = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not isinstance(name, str) or name.partition(".")[0] != "magpy" or ".demo" in name:
            found = found or frame
            if is_users(frame):
                found = frame
                break
        frame = frame.f_back
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})" if found else ""


def refuse(reason: str, remedy: str = "") -> Refusal:
    """A refusal at the user's current line."""
    return Refusal(reason, where_text(2), remedy)


__all__ = ["refuse", "where_text"]
