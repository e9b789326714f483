"""Operations that the program's own classes take over with `__torch_function__`.

Owns telling which operations those are, calling the methods of classes that are no tensors as parts
of the program, and what the methods of tensor subclasses, below which Python runs unwatched, may
change.  Does not own the recording of the operation itself.  Called by magpy/capture/recorder.py.
Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

import types
from typing import Any

import torch

from magpy import _interp
from magpy.capture.effects import CONTAINERS, container_states, content_of
from magpy.capture.leaves import module_of_type
from magpy.capture.where import refuse
from magpy.errors import Refusal

_QUIET: tuple[Any, ...] = (
    vars(torch.Tensor)["__torch_function__"].__func__,
    torch._C._disabled_torch_function_impl,
)
_CHANGED_BELOW = "a __torch_function__ changes an object that the call looks at"
_CHANGED_BY_A_HOOK = "a hook of gradients changes an object that the call looks at"


def hears(cls: Any) -> bool:
    """Whether Python of the program runs when an operation is given an instance of a class."""
    method = cls.__torch_function__
    return getattr(method, "__func__", method) not in _QUIET


def dispatched(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """An operation on objects that are no tensors: what their methods do is the program's.

    Returns: its result, or NotImplemented if no method takes it.
    """
    given = (func, types, args) if kwargs is None else (func, types, args, kwargs)
    for t in types:
        owner = _first_of(t, (*args, *(kwargs or {}).values()))
        if owner is None:
            break
        method = _interp.call(getattr, (owner, "__torch_function__"), {})
        with mode:  # torch has put the mode aside
            result = _interp.watched(method, given, {})
        if result is not NotImplemented:
            return result
    return NotImplemented


class Below:
    """What unwatched Python changed in the course of a run.

    It is the `__torch_function__` of tensor subclasses, and hooks that autograd's engine calls.

    What they do to containers that the rest of the call looks at cannot be told apart from what
    the call does.
    """

    def __init__(self, session: Any) -> None:
        """Nothing was changed yet."""
        self._session = session
        # (address of a container, class or globals; name; why a look at that is refused).
        self._changed: list[tuple[int, Any, Refusal]] = []

    def before(self, hearing: list[type]) -> Any:
        """What instances of these classes could change, as `after` wants it."""
        return container_states(self._session), *_within_reach(hearing)

    def after(self, hearing: list[type], before: Any) -> Refusal | None:
        """An operation that they hear of is over; a refusal if it changed what the call changed."""
        states, names, contents = before
        names_now, contents_now = _within_reach(hearing)
        self._changed += [
            (*place, refuse(_CHANGED_BELOW))
            for place, v in names_now.items()
            if names.get(place, place) is not v
        ]
        self._changed += [
            (i, None, refuse(_CHANGED_BELOW))
            for i, content in contents_now.items()
            if contents.get(i, content) != content
        ]
        now = container_states(self._session)
        changed = any(now.get(k) != v for k, v in states.items())
        return refuse(_CHANGED_BELOW) if changed else None

    def by_hooks(self, places: list[tuple[int, Any]]) -> None:
        """Hooks have changed what is there."""
        self._changed += [(*place, refuse(_CHANGED_BY_A_HOOK)) for place in places]

    def looked_at(self) -> Refusal | None:
        """A refusal where the call looks, at any time, at what they have changed."""
        if not self._changed:
            return None
        looked: set[tuple[int, Any]] = {(id(v), None) for v, *_ in self._session.containers()}
        for kind, v, name, value in self._session.log():
            if kind == "type_attr":
                looked.update((id(c), name) for c in v.__mro__)
            elif kind == "protocols":
                looked.update((id(c), special) for c in v.__mro__ for special, _ in value)
            elif kind == "list_item":
                looked.add((id(v), None))
            elif kind == "dict_key":
                looked.add((id(v), name))
            elif kind == "cell":
                looked.add((id(v), None))
        for place, name, refusal in self._changed:
            if (place, name) in looked:
                return refusal
        return None


def _within_reach(classes: list[type]) -> tuple[dict[tuple[int, str], Any], dict[int, Any]]:
    """What the `__torch_function__` of classes may change without being watched.

    Returns:
        The attributes of the classes and the globals that it names, by (place, name), and what the
        containers among them hold, by address.
    """
    names: dict[tuple[int, str], Any] = {}
    contents: dict[int, Any] = {}
    for cls in classes:
        for c in cls.__mro__:
            if module_of_type(c).partition(".")[0] not in ("torch", "builtins"):
                names.update(((id(c), name), v) for name, v in vars(c).items())
        method: Any = getattr(cls, "__torch_function__", None)
        function = getattr(method, "__func__", method)
        if isinstance(function, types.FunctionType):
            space = function.__globals__
            names.update(
                ((id(space), name), space[name])
                for name in function.__code__.co_names
                if name in space
            )
    for v in names.values():
        if isinstance(v, CONTAINERS):
            contents[id(v)] = content_of(v)
    return names, contents


def _first_of(t: type, values: Any) -> Any:
    """The first object of this very type among arguments, or None."""
    for v in values:
        if type(v) is t:
            return v
        if isinstance(v, (tuple, list)):
            found = _first_of(t, v)
            if found is not None:
                return found
    return None
