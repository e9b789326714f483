"""Stand-ins for what ParityBench files import and this machine lacks.

Owns: permissive stand-ins for packages and names that cannot be installed, names that Python and
NumPy removed, torchvision's operators beside a torch without them, the helper module that the files
import.
Does not own: running the files (`corpus`).  Called by `corpus` and, once, by the warm parent
process.

A stand-in lets a file *import*; a test case that computes with one is left out, as one that eager
cannot run.
"""

from __future__ import annotations

import collections
import collections.abc
import fractions
import functools
import importlib.util
import inspect
import math
import re
import sys
import time
import types
import unittest
import warnings
from typing import Any

import numpy as np
import torch

STAND_IN_ROOTS = (
    "tensorflow",
    "torchaudio",
    "torchtext",
    "torchvision",
    "sklearn",
    "scipy",
    "pandas",
    "matplotlib",
)


class StandInUsed(RuntimeError):
    """A test case's result holds a stand-in, so that there is nothing to compare."""


class _StandInType(type):
    """Classes whose attributes are stand-in classes too, and which decorate by doing nothing."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        child = make_stand_in(f"{cls.__qualname__}.{name}")
        setattr(cls, name, child)
        return child

    def __getitem__(cls, _key: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and inspect.isfunction(args[0]):
            return args[0]
        return super().__call__(*args, **kwargs)


class StandIn(metaclass=_StandInType):
    """An object of a package that is not installed: any attribute, any call, no items."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(type(self), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and inspect.isfunction(args[0]):
            return args[0]
        return StandIn()

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def make_stand_in(qualname: str) -> Any:
    """A fresh stand-in class called `qualname`: a base class, a function or a constant."""
    return _StandInType(
        qualname.rpartition(".")[2],
        (StandIn,),
        {"__qualname__": qualname, "__module__": "stand_in"},
    )


class StandInModule(types.ModuleType):
    """A module that holds whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = sys.modules.get(f"{self.__name__}.{name}") or make_stand_in(
            f"{self.__name__}.{name}"
        )
        setattr(self, name, value)
        return value


def install_module(name: str) -> None:
    """Put stand-in modules for `name` and for its missing parents into `sys.modules`."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        dotted = ".".join(parts[:depth])
        if dotted in sys.modules:
            continue
        module = StandInModule(dotted)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(dotted, None)
        sys.modules[dotted] = module
        if depth > 1:
            setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)


def supply_missing(error: Exception) -> bool:
    """Supply what an import failed for, in this process; False when the error is another.

    The files name thousands of things in packages' older versions; rather than a table of them,
    whatever an import asks for and does not get is stood in for, and the file is executed again.
    """
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        install_module(error.name)
        return True
    found = (
        re.match(r"cannot import name '(\w+)' from '([\w.]+)'", text)
        if isinstance(error, ImportError)
        else None
    )
    if found is None and isinstance(error, AttributeError):
        swapped = re.match(r"module '([\w.]+)' has no attribute '(\w+)'", text)
        if swapped and swapped[1] in sys.modules:
            setattr(sys.modules[swapped[1]], swapped[2], make_stand_in(".".join(swapped.groups())))
            return True
    if found and found[2] in sys.modules:
        name, module = found.groups()
        setattr(sys.modules[module], name, make_stand_in(f"{module}.{name}"))
        return True
    return False


def _argspec(func: Any) -> Any:
    """`inspect.getargspec`, removed in Python 3.11."""
    spec = inspect.getfullargspec(func)
    argspec = collections.namedtuple("argspec", "args varargs keywords defaults")
    return argspec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def restore_removed_names() -> None:
    """Give Python, NumPy and torch back the names that later versions dropped."""
    for name in (
        "Mapping",
        "MutableMapping",
        "Sequence",
        "Iterable",
        "Iterator",
        "Callable",
        "Hashable",
        "Sized",
    ):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    removed: list[tuple[Any, dict[str, Any]]] = [
        (inspect, {"getargspec": _argspec}),
        (fractions, {"gcd": math.gcd}),
        (time, {"clock": time.perf_counter}),
        (
            np,
            {
                "float": float,
                "int": int,
                "bool": bool,
                "object": object,
                "str": str,
                "complex": complex,
                "long": int,
                "unicode": str,
                "float_": np.float64,
                "complex_": np.complex128,
                "Inf": np.inf,
                "infty": np.inf,
                "NaN": np.nan,
                "NAN": np.nan,
                "PINF": np.inf,
                "NINF": -np.inf,
                "product": np.prod,
                "cumproduct": np.cumprod,
                "alltrue": np.all,
                "sometrue": np.any,
                "asscalar": lambda a: a.item(),
                "in1d": np.isin,
                "row_stack": np.vstack,
                "string_": np.bytes_,
                "unicode_": np.str_,
                "round_": np.round,
                "float96": np.longdouble,
                "trapz": np.trapezoid,
            },
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, names in removed:
            for name, value in names.items():
                if not hasattr(module, name):
                    setattr(module, name, value)
    six = types.ModuleType("torch._six")
    vars(six).update(
        container_abcs=collections.abc,
        string_classes=(str, bytes),
        int_classes=int,
        inf=math.inf,
        nan=math.nan,
        FileNotFoundError=FileNotFoundError,
        PY3=True,
        PY37=True,
        moves=types.SimpleNamespace(zip=zip, map=map),
    )
    sys.modules.setdefault("torch._six", six)
    vars(torch)["_six"] = sys.modules["torch._six"]


def declare_torchvision_operators() -> None:
    """Let torchvision import where its compiled operators do not load.

    Its wheel wants a torch with CUDA.  Its Python part describes two operators while it is
    imported, which must exist by then; the declared ones raise when called, as a missing kernel
    does, and the test case is then one that eager cannot run.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except (RuntimeError, OSError, ImportError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT_ALIVE.append(library)


_KEPT_ALIVE: list[Any] = []


class _MockConfig(dict[str, Any]):
    """The configuration object that the generated files build: a dictionary read by attribute."""

    __getattr__ = dict.__getitem__


class _MockLayer(torch.nn.ReLU):
    """The layer that the generated files put where a project asks for a block class."""

    expansion = 1

    def __str__(self) -> str:
        return "_mock_layer()"

    __repr__ = __str__


def _mock_layer(
    in_features: Any = None, out_features: Any = None, *_args: Any, **kwargs: Any
) -> torch.nn.Module:
    if in_features and out_features:
        return torch.nn.Linear(in_features, out_features, **kwargs)
    return _MockLayer()


@functools.cache
def _patch_functional() -> None:
    """Make torch's two `functional` modules hold each other's functions: projects call both F."""
    first, second = torch.functional, torch.nn.functional
    for source, target in ((first, second), (second, first)):
        for name in dir(source):
            if "a" <= name[0] <= "z" and not hasattr(target, name):
                setattr(target, name, getattr(source, name))


def install_helpers() -> None:
    """Supply `_paritybench_helpers`, which every file imports, without ParityBench's own runner."""
    module = types.ModuleType("_paritybench_helpers")
    vars(module).update(
        _mock_config=_MockConfig,
        _mock_layer=_mock_layer,
        patch_functional=_patch_functional,
        _paritybench_base=unittest.TestCase,
        _fails_compile=lambda: lambda function: function,
        DummyBlock=_MockLayer,
    )
    sys.modules["_paritybench_helpers"] = module


@functools.cache
def prepare() -> None:
    """Everything above, once in a process."""
    restore_removed_names()
    install_helpers()
    declare_torchvision_operators()
    if importlib.util.find_spec("tensorboard") is None:
        install_module("torch.utils.tensorboard")
    for root in STAND_IN_ROOTS:
        if importlib.util.find_spec(root) is None:
            install_module(root)
            continue
        try:
            importlib.import_module(root)
        except Exception:  # noqa: BLE001 - a package that is installed and broken is stood in for like a missing one
            for name in [name for name in sys.modules if name.partition(".")[0] == root]:
                del sys.modules[name]
            install_module(root)
