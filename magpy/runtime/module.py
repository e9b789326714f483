"""Compiled modules: an `nn.Module` whose calls go through a compiled callable and that is otherwise the module itself.

Owns the classes made for compiled modules, their pickling and copying.  Does not own the compiled callable
(magpy/runtime/compiled.py).  Called by magpy/api.py and, through pickle, by users.

A compiled module shares the instance dict of the module that it was made from: parameters, buffers, hooks, attributes and
`state_dict` keys are the same, and a change through one is seen through the other.  Its class is a subclass of the module's.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from magpy.runtime import compiled as runtime
from magpy.runtime.compiled import Options

_classes: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
_callables: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class CompiledModuleMixin:
    """What a compiled module's class adds to the module's own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module through its entries."""
        return self.__magpy_compiled__(*args, **kwargs)

    @property
    def __magpy_compiled__(self) -> Any:
        return callable_of(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles the module and the options; entries are not kept."""
        return rebuild, (_originals[self], callable_of(self)._magpy_options.options)

    def __copy__(self) -> Any:
        """A compiled shallow copy of the module."""
        return compile_module(copy.copy(_originals[self]), callable_of(self)._magpy_options.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A compiled deep copy of the module, with no entries."""
        return compile_module(
            copy.deepcopy(_originals[self], memo), callable_of(self)._magpy_options.options
        )


def callable_of(module: Any) -> Any:
    """The compiled callable behind a compiled module."""
    return _callables[module]


def original_of(module: Any) -> Any:
    """The module that a compiled module was made from."""
    return _originals[module]


def is_compiled(obj: Any) -> bool:
    """Whether the object is a compiled module."""
    return isinstance(obj, CompiledModuleMixin)


def _class_of(cls: type) -> type:
    made = _classes.get(cls)
    if made is None:
        body = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "__slots__": ("__weakref__",) if not hasattr(cls, "__weakref__") else (),
        }
        made = type(cls)(cls.__name__, (CompiledModuleMixin, cls), body)
        _classes[cls] = made
    return made


def compile_module(module: torch.nn.Module, options: Options) -> Any:
    """A compiled module that shares everything with `module`."""
    cls = _class_of(type(module))
    new = object.__new__(cls)
    object.__setattr__(new, "__dict__", module.__dict__)
    _originals[new] = module
    _callables[new] = runtime.make(module, options)
    return new


def rebuild(module: torch.nn.Module, options: Options) -> Any:
    """Unpickles a compiled module."""
    return compile_module(module, options)
