"""`isinstance` as magpy asks it of the program's objects: by their type alone.

Owns that question, and nothing else. Python's own asks an object for its `__class__`, too, which
may be code of the program, or a lie (proxies, mocks). What the program itself asks is asked by
Python's. Imported by the modules that look at the program's objects, in place of the built-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builtins import isinstance  # noqa: UP029 - type checkers know it by that name
else:
    from magpy._interp import is_instance as isinstance

__all__ = ["isinstance"]
