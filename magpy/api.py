"""The public surface: `compile`, `stats`, `explain`, `reset`, `disable`, registration of leaves.

Owns the checking of what users pass in.  Does not own what happens in a call (magpy/runtime).
Imported by magpy/__init__.py.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch

from magpy import _interp, backends
from magpy.capture.python import native
from magpy.errors import MagpyWarning, OptionError
from magpy.models import callables
from magpy.models.c_function_tables import Effect, Leaf
from magpy.runtime import compiled as runtime
from magpy.runtime import module as modules
from magpy.runtime import saved
from magpy.runtime.compiled import Options
from magpy.runtime.figures import Stats
from magpy.runtime.saved import Saved

F = TypeVar("F", bound=Callable[..., Any])


@overload
def compile(
    f: F,
    *,
    backend: Any = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    background: bool = ...,
) -> F: ...
@overload
def compile(
    f: None = ...,
    *,
    backend: Any = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    background: bool = ...,
) -> Callable[[F], F]: ...


def compile(
    f: Any = None,
    *,
    backend: Any = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    background: bool = False,
) -> Any:
    """Compiles a function, method or module; usable as a decorator with and without arguments.

    Args:
        f: what to compile.
        backend: "inductor", "eager", any name that `torch._dynamo.list_backends()` knows, or a
            callable `(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> callable`.
        fullgraph: raise `CaptureError` when a call cannot become one entry with one graph.
        dynamic: None: sizes and numbers among the arguments are static until they vary, then one
            entry serves all for which the program does the same; True: they are taken to vary from
            the first call on; False: never.
        mode: as in torch.compile ("default", "reduce-overhead", "max-autotune",
            "max-autotune-no-cudagraphs"), or "auto": the first calls are served by eager and by
            what the backend compiled (on CUDA also with CUDA graphs) in turn, and the fastest
            stays.
        options: options of the backend, as in torch.compile.
        background: compile graphs in another process; until they are there, calls run eagerly.  For
            the backend "inductor"; other backends compile in the first call as ever.

    Returns:
        A callable that does what `f` does.  For a module, a module of the same class that shares
        its state.  A scripted module or function comes back as it is, with one warning: TorchScript
        runs it without Python already.

    Raises:
        TypeError: `f` is not callable, or is a class.
        OptionError: an option has a value that it cannot have.
    """
    if not isinstance(fullgraph, bool):
        raise OptionError(f"fullgraph must be True or False, not {type(fullgraph).__name__}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise OptionError(f"dynamic must be True, False or None, not {type(dynamic).__name__}")
    if not isinstance(background, bool):
        raise OptionError(f"background must be True or False, not {type(background).__name__}")
    backends.check_options(backend, mode, options)
    chosen = Options(
        backend, fullgraph, dynamic, mode, dict(options) if options else None, background
    )
    if f is None:
        return lambda g: _compile(g, chosen)
    return _compile(f, chosen)


@functools.cache
def _warn_once_of_scripts() -> None:
    warnings.warn(
        MagpyWarning(
            "magpy.compile got a scripted module or function, which runs without Python already, "
            "and leaves it as it is; compile the original instead"
        ),
        stacklevel=4,
    )


def _compile(f: Any, options: Options) -> Any:
    if isinstance(f, _interp.Compiled) or modules.is_compiled(f):
        return f
    if isinstance(f, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        _warn_once_of_scripts()
        return f
    if isinstance(f, type):
        raise TypeError(
            f"magpy.compile got the class {f.__name__}; compile an instance: "
            f"magpy.compile({f.__name__}(...))"
        )
    if isinstance(f, (staticmethod, classmethod)):  # the decorator stands above theirs
        return type(f)(_compile(f.__func__, options))
    if not callable(f):
        raise TypeError(f"magpy.compile needs a function, method or module, not {type(f).__name__}")
    if isinstance(f, torch.nn.Module):
        return modules.compile_module(f, options)
    return runtime.make(f, options)


def find(c: Any) -> Any:
    """The compiled callable behind whatever `magpy.compile` returned.

    Raises:
        TypeError: it did not come from `magpy.compile`.
    """
    if modules.is_compiled(c):
        return modules.callable_of(c)
    if isinstance(c, _interp.Compiled):
        return c
    inner = getattr(c, "__func__", None)
    if isinstance(inner, _interp.Compiled):
        return inner
    raise TypeError(f"{c!r} was not made by magpy.compile")


def stats(c: Any) -> Stats:
    """What a compiled callable did so far: `stats(c).hits`, `stats(c)["hits"]`, `dict(stats(c))`.

    Args:
        c: what `magpy.compile` returned.

    Returns:
        The figures as they are now; `magpy.api.Stats` describes each.

    Raises:
        TypeError: `c` was not made by `magpy.compile`.
    """
    compiled = find(c)
    result: Stats = compiled._magpy_options.stats(compiled)
    return result


def reset(c: Any = None) -> None:
    """Drops the entries of `c`, or of every compiled callable, and what `stats` counted.

    Raises:
        TypeError: `c` was not made by `magpy.compile`.
    """
    if c is None:
        runtime.reset_all()
    else:
        compiled = find(c)
        compiled._magpy_options.reset(compiled)


def save(c: Any, path: Any) -> Saved:
    """Writes the entries of `c`, with their compiled graphs, for `load` in another process.

    The calls must have been made with `magpy.config.saving = True`. TorchInductor compiles the
    graphs once more, in a process of its own, as they must be for another process. The file says
    what can load it: the same versions, and the same processor. docs/saving.md has what travels.

    Args:
        c: what `magpy.compile` returned.
        path: the file, which is replaced.

    Returns:
        How many entries and graphs are in it, and why others are not.

    Raises:
        SaveError: no entry can travel.
        TypeError: `c` was not made by `magpy.compile`.
    """
    found = saved.save(find(c), path)
    if found.left:
        reasons = "; ".join(dict.fromkeys(found.left))
        warnings.warn(MagpyWarning(f"not in {path}: {reasons}"), stacklevel=2)
    return found


def load(f: F, path: Any) -> F:
    """Compiles `f` as it was compiled where `path` was saved; the entries there serve at once.

    **Only load a file that you trust**: it is a pickle and has compiled code, and both run.

    Args:
        f: the function, method or module, as `magpy.compile` takes it, of the same program.
        path: a file of `save`.

    Returns:
        The compiled callable. Calls that no entry of the file fits are captured as ever. Where
        some of its entries do not fit this program, one warning says why.

    Raises:
        LoadError: the file is no such file, or of other versions or another processor, or none of
            its entries fits the program: a function, a class, a tensor is another one.
    """
    content = saved.read(path)
    compiled = _compile(f, content.options)
    wrong = saved.load(find(compiled), content, path)
    if wrong:
        reasons = "; ".join(dict.fromkeys(wrong))
        warnings.warn(MagpyWarning(f"not loaded from {path}: {reasons}"), stacklevel=2)
    return compiled  # type: ignore[no-any-return]


def disable(f: Any) -> Any:
    """Makes calls of the Python function `f` run eagerly: a compiled call with one is refused.

    Raises:
        TypeError: `f` is not a Python function, method or module.
    """
    if isinstance(f, torch.nn.Module):
        f.forward = disable(f.forward)
        return f
    if isinstance(f, _interp.Compiled):
        return f._magpy_wrapped
    if not callable(f):
        raise TypeError(f"magpy.disable needs a function, not {type(f).__name__}")

    @functools.wraps(f)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    _register_python(disabled, Effect.REFUSE)
    return disabled


def _register_python(f: Any, effect: Effect) -> None:
    inner = getattr(f, "__func__", f)
    # One code object serves every function made at the same place: give this one its own.
    code = inner.__code__.replace()
    inner.__code__ = code
    callables.register_python(inner, effect)
    _interp.set_leaf_code(code, int(Leaf.HANDLER))


def _is_python(f: Any) -> bool:
    return hasattr(getattr(f, "__func__", f), "__code__")


def _register(f: F, effect: Effect) -> F:
    native.prepare()
    if _is_python(f):
        _register_python(f, effect)
    elif callable(f):
        callables.set_effect(f, effect)
        _interp.forget_leaves()
    else:
        raise TypeError(f"a function is needed, not {type(f).__name__}")
    return f


def allow_in_graph(f: F) -> F:
    """Records calls of `f` as one operation of the graph: magpy does not look into it.

    It must return tensors that follow from its arguments alone.
    """
    return _register(f, Effect.WHOLE)


def effect(f: F) -> F:
    """Says that `f` is called for an effect, redone in order with its arguments built anew.

    It is called when all else of the call is done, so what it returns (other than None) cannot be
    used: a call that gets something else from it runs eagerly.  A function of C that magpy knows,
    such as `list.append`, is followed as ever.  One that is written in Python runs as the program
    calls it, and what is around the call is compiled: nobody watches what it does otherwise.
    """
    native.prepare()
    if callable(f) and not _is_python(f) and callables.is_known(f):
        return f
    return _register(f, Effect.EFFECT)


def pure(f: F) -> F:
    """Says that the C function `f` depends on its arguments alone and changes nothing."""
    if _is_python(f):
        return f
    if not callable(f):
        raise TypeError(f"a function is needed, not {type(f).__name__}")
    callables.set_pure(f)
    _interp.forget_leaves()
    return f


__all__ = [
    "Stats",
    "allow_in_graph",
    "compile",
    "disable",
    "effect",
    "find",
    "load",
    "pure",
    "reset",
    "save",
    "stats",
]
