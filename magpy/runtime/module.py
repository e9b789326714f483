"""Compiled modules: an `nn.Module` that is the module itself but for how it is called.

Owns the classes made for compiled modules, their pickling and copying.  Does not own the compiled
callable (magpy/runtime/compiled.py).  Called by magpy/api.py and, through pickle, by users.

A compiled module shares the instance dict of the module that it was made from: parameters, buffers,
hooks, attributes and `state_dict` keys are the same, and a change through one is seen through the
other.  Its class is a subclass of the module's, and follows it: `__class__` is the module's own,
read and assigned (`torch.nn.utils.parametrize` does both).
"""

from __future__ import annotations

import abc
import copy
import copyreg
import functools
import sys
import threading
import types
import weakref
from typing import Any

import torch

from magpy import _interp
from magpy.objects.types import isinstance
from magpy.runtime import compiled as runtime
from magpy.runtime.compiled import Options

_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()
_made: weakref.WeakSet[type] = weakref.WeakSet()
# Slots of a compiled module's class: not in the instance dict, which belongs to the module.
_SLOTS = (_interp.MODULE_SLOT, "__magpy_original__", "__magpy_inside__")
# Modules that do their own part around a module that they hold, or around their `forward`: theirs
# is done by Python as ever, and what is inside is compiled. DistributedDataParallel tells its
# reducer of each forward pass, which nobody may leave out; torch.compile leaves it to Python, too.
_AROUND = torch.nn.parallel.DistributedDataParallel
_own_class: Any = vars(object)["__class__"]
_own_dict: Any = vars(torch.nn.Module)["__dict__"]


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs the module through its entries."""
    return callable_of(self)(*args, **kwargs)


_call.__name__, _call.__qualname__ = "__call__", "CompiledModuleMixin.__call__"
_call.__annotations__ = {}  # as `nn.Module.__call__` has none


class CompiledModuleMixin:
    """What a compiled module's class adds to the module's own."""

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """What the program makes of the class (`type(model)(...)`) is a module as any other."""
        if cls in _made:
            return _plain(cls)(*args, **kwargs)
        return super().__new__(cls)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The program's `__init_subclass__` does not hear of classes that it has not made."""

    @property
    def __class__(self) -> type:
        """The module's class; an assignment is the module's, too."""
        follow(self)
        return type(original_of(self))

    @__class__.setter
    def __class__(self, cls: type) -> None:
        original_of(self).__class__ = _plain(cls)
        follow(self)

    def __getattr__(self, name: str) -> Any:
        """What the class has not; but the module's may be another by now."""
        if follow(self):
            return getattr(self, name)
        # Spelled out: `__class__`, which `super()` goes by, is the property here.
        above: Any = super(CompiledModuleMixin, self)  # noqa: UP008
        return above.__getattr__(name)

    # Without a frame of its own, and with this one's name, text and signature.
    __call__ = functools.update_wrapper(_interp.ModuleCall(), _call)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's: its hooks are given the module itself."""
        module = original_of(self)
        return type(module).state_dict(module, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, likewise."""
        module = original_of(self)
        return type(module).load_state_dict(module, *args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles the module and the options; entries are not kept."""
        return rebuild, (original_of(self), callable_of(self)._magpy_options.options)

    def __copy__(self) -> Any:
        """A compiled shallow copy of the module."""
        return compile_module(
            copy.copy(original_of(self)), callable_of(self)._magpy_options.options
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A compiled deep copy of the module, with no entries."""
        made = copy.deepcopy(original_of(self), memo)
        known = memo.get(id(self))  # the module may hold what was compiled of it
        if known is not None:
            return known
        return compile_module(made, callable_of(self)._magpy_options.options)


class _Slotted(CompiledModuleMixin):
    __slots__ = _SLOTS


def callable_of(module: Any) -> Any:
    """The compiled callable behind a compiled module."""
    return object.__getattribute__(module, _interp.MODULE_SLOT)


def original_of(module: Any) -> Any:
    """The module that a compiled module was made from."""
    return object.__getattribute__(module, "__magpy_original__")


def follow(module: Any) -> bool:
    """Gives a compiled module the class that goes with its module's; whether it had another.

    Raises:
        TypeError: the interpreter cannot give it that class (one has `__slots__`).
    """
    made = _class_of(type(original_of(module)))
    if made in type(module).__mro__:
        return False
    _own_class.__set__(module, made)
    return True


def _plain(cls: type) -> type:
    """The class of the modules that a class of compiled modules was made for."""
    return cls.__bases__[-1] if isinstance(cls, type) and cls in _made else cls


def is_compiled(obj: Any) -> bool:
    """Whether the object is a compiled module."""
    return isinstance(obj, CompiledModuleMixin)


def _class_of(cls: type) -> type:
    known = _classes.get(cls)
    made = known() if known is not None else None
    if made is None:
        body: dict[str, Any] = {
            "__dict__": property(_own_dict.__get__, _set_dict),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        if issubclass(cls, _AROUND):
            body |= {"__call__": _call_around, "module": property(_inside)}
        elif _shards(cls):
            body |= {"__call__": _call_around, "forward": property(_forward, _set_forward)}
        slots = copyreg._slotnames(cls)  # type: ignore[attr-defined]
        if slots:  # which are the module's, and leave no room for those of a common base
            bases: Any = (CompiledModuleMixin, cls)
            body |= {"__slots__": _SLOTS, **{name: _shared_slot(name) for name in slots}}
        else:
            # One base has the slots, so that an object may go from one of these classes to another.
            bases = (_Slotted, cls)
            body["__slots__"] = ()
        # Nor does the metaclass hear of it.
        made = type.__new__(type(cls), cls.__name__, bases, body)
        if isinstance(made, abc.ABCMeta):
            abc._abc_init(made)  # type: ignore[attr-defined]
        _classes[cls] = weakref.ref(made)
        _made.add(made)
    return made


#: The modules around compiled ones whose forward pass a thread is in.
_entered = threading.local()


def _call_around(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a module that is around the compiled one."""
    before: tuple[int, ...] = getattr(_entered, "modules", ())
    _entered.modules = (*before, id(self))
    try:
        return super(CompiledModuleMixin, self).__call__(*args, **kwargs)
    finally:
        _entered.modules = before


def _inside(module: Any) -> Any:
    """The module that such a module holds; in its forward pass, compiled."""
    held = module.__dict__["_modules"]["module"]
    if id(module) not in getattr(_entered, "modules", ()):
        return held
    inside = object.__getattribute__(module, "__magpy_inside__")
    if held is not inside and held is not original_of(inside):  # another one was put there
        inside = compile_module(held, callable_of(inside)._magpy_options.options)
        object.__setattr__(module, "__magpy_inside__", inside)
        object.__setattr__(module, _interp.MODULE_SLOT, callable_of(inside))
    return inside


def _shards(cls: type) -> bool:
    """Whether `fully_shard` has made a class: its hooks gather a module's parameters."""
    sharding: Any = sys.modules.get("torch.distributed.fsdp")
    return sharding is not None and issubclass(cls, sharding.FSDPModule)


def _forward(module: Any) -> Any:
    """The `forward` of a module whose hooks are Python's, compiled."""
    own = module.__dict__.get("forward")
    original = original_of(module)
    function = type(original).forward if own is None else own
    known, inside = getattr(module, "__magpy_inside__", (None, None))
    if known is not function:
        bound = types.MethodType(function, original) if own is None else own
        options = callable_of(module)._magpy_options.options
        inside = bound if isinstance(own, _interp.Compiled) else runtime.make(bound, options)
        object.__setattr__(module, "__magpy_inside__", (function, inside))
        object.__setattr__(module, _interp.MODULE_SLOT, inside)
    return inside


def _set_forward(module: Any, function: Any) -> None:
    module.__dict__["forward"] = function


def _set_dict(module: Any, d: dict[str, Any]) -> None:
    original = getattr(module, "__magpy_original__", None)
    if original is not None:  # what the program makes of a class derived from this one has none
        _own_dict.__set__(original, d)
    _own_dict.__set__(module, d)


def _shared_slot(name: str) -> Any:
    """A slot of the module's class, of which the module's is read and written."""
    return property(
        lambda self: getattr(original_of(self), name),
        lambda self, value: setattr(original_of(self), name, value),
        lambda self: delattr(original_of(self), name),
    )


def compile_module(module: torch.nn.Module, options: Options) -> Any:
    """A compiled module that shares everything with `module`.

    Of a `torch.nn.parallel.DistributedDataParallel` the module inside is compiled, of a module that
    `fully_shard` has sharded its `forward`; its options and figures are those of that.
    """
    cls = _class_of(type(module))
    new: Any = object.__new__(cls)
    _own_dict.__set__(new, _own_dict.__get__(module))
    object.__setattr__(new, "__magpy_original__", module)
    if isinstance(module, _AROUND):
        held = module.module
        inside = held if is_compiled(held) else compile_module(held, options)
        object.__setattr__(new, "__magpy_inside__", inside)
        object.__setattr__(new, _interp.MODULE_SLOT, callable_of(inside))
    else:
        object.__setattr__(new, _interp.MODULE_SLOT, runtime.make(module, options))
    _share_state(new, module)
    return new


def _share_state(new: Any, module: torch.nn.Module) -> None:
    """What torch keeps of a module, by the module, holds for the compiled one (`fully_shard`)."""
    composable = sys.modules.get("torch.distributed._composable_state")
    states: Any = getattr(composable, "_module_state_mapping", None)
    if states is not None and type(module).__hash__ is object.__hash__ and module in states:
        states[new] = states[module]


def rebuild(module: torch.nn.Module, options: Options) -> Any:
    """Unpickles a compiled module."""
    return compile_module(module, options)
