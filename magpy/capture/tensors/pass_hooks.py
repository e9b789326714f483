"""Hooks that run in a backward pass of the call, watched: those of modules for their gradients.

`register_full_backward_hook` puts nodes that do nothing (`BackwardHookFunction`) around a module,
with hooks of torch's that call those of the program.  In a run these are called as a part of it:
what they compute are operations that come after the pass, with the gradients that the pass gives
for the tensors of such a node.

Owns the nodes, their hooks, and telling where what a hook does cannot wait until the pass is over.
Does not own how a hook is watched (magpy/capture/tensors/recorder.py), nor the operation that a
pass becomes (magpy/replay/passes/trace_backward.py).

Source: torch/utils/hooks.py, `BackwardHook`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction

from magpy import _tensor
from magpy.errors import Refusal
from magpy.ir.ops import HostStep, ModeStep, OpStep, Record, Step, Var, has_gradient
from magpy.ir.trees import tensors, variables
from magpy.objects.types import isinstance


class WatchedHook:
    """A hook of a node, which is a part of the run as long as that lasts."""

    def __init__(self, node: Any, hook: Any, run: Callable[..., Any]) -> None:
        """Keeps the hook."""
        self._node: Any = node
        self._hook = hook
        self._run: Callable[..., Any] | None = run

    def __call__(self, *given: Any) -> Any:
        """Calls it: in the run, or as autograd does."""
        return self._hook(*given) if self._run is None else self._run(self._node, self._hook, given)

    def end(self) -> None:
        """The run is over."""
        self._node = self._run = None


class PassHooks:
    """The nodes with hooks that the tensors of one run went through."""

    def __init__(self) -> None:
        """There are none."""
        #: The variables that such a node gave, by their place.
        self._nodes: dict[Any, dict[int, Var]] = {}
        self._hooks: list[WatchedHook] = []
        #: Why a node is refused whose hook no pass of the run calls.
        self._hooked: dict[Any, Refusal] = {}
        self._ran: set[Any] = set()
        #: Of the pass that is made now: what a node gave, and the gradient of that.
        self.heard: list[tuple[Var, Var]] = []

    def made(self, record: Record, result: Any, known: Callable[[Any], Var | None]) -> None:
        """Such a node was made in the step that was added last, which becomes views.

        Args:
            record: that of the run.
            result: what the step gave.
            known: gives the variable of a tensor.
        """
        step = record.steps[-1]
        if not isinstance(step, OpStep) or not is_hook_function(step.func):
            return
        for t in tensors(result):
            var = known(t)
            if t.grad_fn is not None and var is not None and var in step.defined:
                self._nodes.setdefault(t.grad_fn, {})[t.output_nr] = var
        del record.steps[-1]
        for path, var in step.outs:
            of = step.args[path[0] if path else 0]
            view = OpStep(torch.Tensor.view_as, (of, of), {}, [((), var)], where=step.where)
            record.steps.append(view)

    def takes(self, node: Any, hook: Any) -> bool:
        """Whether a hook of a node can be watched.

        Where no input of a module requires gradients torch's hook warns of that, of a line that is
        so many frames away.
        """
        if node not in self._nodes or not isinstance(hook, types.FunctionType):
            return False
        if hook.__module__ != "torch.utils.hooks" or hook.__code__.co_freevars != ("self",):
            return False
        of = (hook.__closure__ or ())[0].cell_contents
        at_input = "_set_user_hook" in hook.__qualname__
        return at_input or getattr(of, "input_tensors_index", None) is not None

    def register(self, node: Any, hook: Any, run: Callable[..., Any], later: Refusal) -> Any:
        """Registers a hook of a node; gives the handle.

        Args:
            node: the node.
            hook: the hook.
            run: calls it as a part of the run.
            later: the refusal of the run if no pass of the run calls it.
        """
        watched = WatchedHook(node, hook, run)
        self._hooks.append(watched)
        self._hooked.setdefault(node, later.without_frames())
        return node.register_hook(watched)

    def known(self, node: Any) -> bool:
        """Whether what runs at a node is watched."""
        return node in self._nodes and all(
            isinstance(h, WatchedHook) for h in _tensor.node_hooks(node)
        )

    def given(self, node: Any, values: Any, new: Callable[[Any], Var | None]) -> None:
        """A hook of a node is called with gradients; `new` makes variables of unknown ones."""
        self._ran.add(node)
        for group in values:
            for i, t in enumerate(group if isinstance(group, tuple) else ()):
                if isinstance(t, torch.Tensor) and (var := new(t)) is not None:
                    self.heard.append((self._nodes[node][i], var))

    def left(self) -> Refusal | None:
        """A refusal if a hook was registered that no pass of the run has called."""
        return next((r for node, r in self._hooked.items() if node not in self._ran), None)

    def end(self) -> None:
        """The run is over."""
        for hook in self._hooks:
            hook.end()
        self._nodes.clear()
        self._hooked.clear()
        self._ran.clear()
        self._hooks.clear()


def is_hook_function(func: Any) -> bool:
    """Whether an operation makes a node that does nothing, for hooks."""
    target = getattr(func, "__magpy_target__", func)
    return getattr(target, "__self__", None) is BackwardHookFunction


def cannot_wait(steps: list[Step], heard: Iterable[tuple[Var, Var]], gradients: set[Var]) -> bool:
    """Whether what hooks did cannot be done when the pass is over.

    Args:
        steps: what they did.
        heard: as of an `EngineRun`.
        gradients: what has the memory of gradients that the pass adds to.
    """
    changing = gradients - {given for _, given in heard}
    for step in steps:
        if isinstance(step, ModeStep):
            continue
        if not isinstance(step, (OpStep, HostStep)) or step.random or step.mutates:
            return True
        if not changing.isdisjoint(variables((step.args, step.kwargs))):
            return True
        if isinstance(step, HostStep) and (
            step.engine is not None
            or step.unrepeatable
            or step.func is has_gradient
            or (step.func is getattr and step.args[1:] == ("grad",))
        ):
            return True
    return False


__all__ = ["PassHooks", "WatchedHook", "cannot_wait", "is_hook_function"]
