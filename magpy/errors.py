"""The errors and warnings that magpy raises.

Owns the three families: errors of the user (`MagpyError` and its subclasses), refusals (`Refusal`:
this program, or this call, cannot be captured; always caught inside magpy unless `fullgraph=True`),
and failures of magpy itself (`InternalError`).  Does not own their texts.  Used by every other
module; imports nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import types
from dataclasses import dataclass

from magpy import _interp


class MagpyError(Exception):
    """Base class of what magpy raises to its users."""


class CaptureError(MagpyError):
    """Raised with `fullgraph=True` when a call cannot become one entry with one graph."""


class OptionError(MagpyError, ValueError):
    """An option of `magpy.compile` has a value that it cannot have."""


class SaveError(MagpyError):
    """Raised by `magpy.save` when no entry can travel."""


class LoadError(MagpyError):
    """Raised by `magpy.load` when a file, or its entries, are not for this program or process."""


class InternalError(MagpyError):
    """Magpy itself failed; with `fullgraph=False` it warns once and the program runs eagerly."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a frame is.

    Attributes:
        key: the function: file, first line, name.
        spot: the expression: line, last line, column, last column (PEP 657); columns are -1 where
            they are not known.
        encloses: the next frame is of an expression in this function's source (`INNER`).
    """

    key: tuple[str, int, str]
    spot: tuple[int, int, int, int]
    encloses: bool = False


#: Expressions that have frames of their own.
INNER = frozenset(["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"])


#: Libraries without tensors: what is refused there is refused where they are called.
NO_TENSORS = sys.stdlib_module_names | {"numpy"}


#: What magpy itself calls, and what operations are made of.
_INTERNAL = (
    *("sympy.", "torch.fx.", "torch.utils._sympy.", "torch._subclasses.", "torch._meta_reg"),
    *("torch._prims", "torch._refs", "torch._decomp", "torch._ops", "torch._library"),
    "torch.nested",
)


#: How names begin that are spoken with a vowel: "int", "ndarray", but not "one" and "union".
_VOWEL = re.compile("[ai]|e(?!u)|o(?!ne)|un(?!i)|nd", re.IGNORECASE)


def an(name: str) -> str:
    """A name in a message after the article that it needs: "a list", "an int"."""
    return f"{'an' if _VOWEL.match(name) else 'a'} {name}"


def frames_of_the_call() -> list[Site]:
    """The frames of the call that is watched, the innermost first; none if none is."""
    found: list[Site] = []
    frame = sys._getframe(1)
    while frame is not None and not _interp.is_caller(frame):
        code, line = frame.f_code, frame.f_lineno or 0
        if code.co_name == "handle_torch_function":
            # Only while it is watched does an operation of torch's go this way: it is refused
            # where it is called.
            found.clear()
            frame = frame.f_back.f_back if frame.f_back is not None else None  # type: ignore[assignment]
            continue
        module = str(frame.f_globals.get("__name__"))
        inner = _is_inner(module)
        if module.startswith("magpy.") or (inner and not found):
            frame = frame.f_back  # type: ignore[assignment]
            continue
        found.append(_site(code, line, frame.f_lasti, found[-1] if found else None))
        frame = frame.f_back  # type: ignore[assignment]
    # Without a caller the call is over: these are the frames around it.
    return found if frame is not None else []


def _site(code: types.CodeType, line: int, at: int, inner: Site | None) -> Site:
    place = next(itertools.islice(code.co_positions(), max(at, 0) // 2, None), None)
    spot = (line, line, -1, -1)
    if place is not None and None not in place:
        spot = place  # type: ignore[assignment]
    encloses = inner is not None and inner.key[2] in INNER and _encloses(code, inner)
    return Site((code.co_filename, code.co_firstlineno, code.co_name), spot, encloses)


def _encloses(code: types.CodeType, inner: Site) -> bool:
    """Whether a code object is in another, with nothing but expressions around it."""
    return any(
        (c.co_filename, c.co_firstlineno, c.co_name) == inner.key or _encloses(c, inner)
        for c in code.co_consts
        if isinstance(c, types.CodeType) and c.co_name in INNER
    )


def raised_in(traceback: types.TracebackType | None) -> list[Site]:
    """The frames of the program that an exception has passed, the innermost first."""
    passed: list[types.TracebackType] = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if passed and _is_inner(module):
            break  # it is raised where the library is called
        if not module.startswith("magpy."):
            passed.append(traceback)
        traceback = traceback.tb_next
    found: list[Site] = []
    for tb in reversed(passed):
        inner = found[-1] if found else None
        found.append(_site(tb.tb_frame.f_code, tb.tb_lineno, tb.tb_lasti, inner))
    return found


def _is_inner(module: str) -> bool:
    return module.startswith(_INTERNAL) or module.partition(".")[0] in NO_TENSORS


#: How a remedy begins where there is nothing to do but to call again.
NEXT_CALL = "The next call"
FILLED = f"{NEXT_CALL} finds there what this one has put where nothing was"


class Refusal(Exception):
    """A capture cannot become an entry.

    Attributes:
        reason: what the program did, in the user's words.
        where: "file:line (function)" of the user's program, or "".
        remedy: what the user can do, or "".
        passing: whether it says nothing about the next call.
        first_time: whether it need not be refused again, since what it is about has happened then
            (a cache is filled, a module imported).
        raised: whether it is that the call raised, which no line is to blame for.
        frames: where the frames of the call are, the innermost first.
        drives: what is called at the line stays Python, and what that calls may be compiled.
        more: what else was refused in the same run.
    """

    def __init__(
        self, reason: str, where: str = "", remedy: str = "", passing: bool = False
    ) -> None:
        """Keeps the parts; `str()` joins those in words."""
        super().__init__(reason)
        self.frames = frames_of_the_call()
        imports = any(s.key[0].startswith("<frozen importlib") for s in self.frames)
        self.first_time = imports or remedy.startswith(NEXT_CALL)
        self.raised = self.drives = False
        self.more: list[Refusal] = []
        self.reason = reason
        self.where = where
        self.remedy = remedy
        self.passing = passing

    def without_frames(self) -> Refusal:
        """The refusal as it is kept while the run goes on: its frames would keep their locals."""
        self.__context__ = None
        return self.with_traceback(None)

    def __str__(self) -> str:
        """The sentence that `magpy.stats(c).reasons` shows."""
        text = f"{self.where}: {self.reason}" if self.where else self.reason
        return f"{text}. {self.remedy}" if self.remedy else text


#: The first variable of frames of magpy's that look like the program's.
PLACED = "magpy_calls"


def hide_frames(error: BaseException) -> BaseException:
    """Takes magpy's own frames, which an exception has passed last, out of its traceback.

    They would keep what the program has let go, for as long as it keeps the exception: as a part of
    it, and as callers of frames that are.  So those that are over are emptied, too.
    """
    tb = error.__traceback__
    while tb is not None and (
        str(tb.tb_frame.f_globals.get("__name__")).startswith("magpy.")
        or tb.tb_frame.f_code.co_varnames[:1] == (PLACED,)
    ):
        with contextlib.suppress(RuntimeError):  # the caller's own still runs
            tb.tb_frame.clear()
        tb = tb.tb_next
    return error.with_traceback(tb)


class MagpyWarning(UserWarning):
    """What magpy warns about: each thing once."""
