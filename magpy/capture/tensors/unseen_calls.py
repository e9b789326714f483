"""Calls that no mode hears of: those done as a whole, transforms of torch's, C code with tensors.

Owns how each is performed and recorded as one operation.  Does not own what a call that is done as
a whole may be given (magpy/capture/tensors/opaque_calls.py), nor what transforms are made of
(magpy/capture/tensors/functorch.py).  Asked by magpy/capture/python, through the recorder, which
derives from this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from magpy import faults
from magpy.capture.tensors.functorch import switches
from magpy.capture.tensors.opaque_calls import Whole, opened
from magpy.capture.tensors.operation import Operation
from magpy.capture.tensors.pass_hooks import is_hook_function
from magpy.capture.tensors.result_forms import Form, UnknownFormError
from magpy.capture.tensors.writer import Writer
from magpy.errors import FILLED
from magpy.frames import call_sites
from magpy.frames.locations import refuse, where_text
from magpy.ir.ops import (
    CheckValue,
    HostStep,
    OpStep,
    Ref,
    Var,
)
from magpy.ir.trees import tensors, variables
from magpy.models import callables
from magpy.models.torch_ops import (
    sized,
)
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance

_DATA, _DYNAMIC, _RANDOM, _MUTATES, _STATISTICS, _SEVERAL, _LOOKS = 1, 2, 4, 8, 16, 32, 64
_DATA_INSIDE = "a function that magpy records as one operation reads the values of tensors"


class UnseenCalls(Writer):
    """Records the calls of one run that no mode hears of."""

    def whole_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Performs `run`, recorded as one operation `func` without what happens inside."""
        if self.depth or self.refusals.first is not None:
            return run()
        op, whole = Operation(func, place=call_sites.place_of(func)), Whole(self, self._is_outside)
        self.operation, op.whole = op, True
        try:
            self._prepare_whole(op, whole, args, kwargs)
            if self._stopped():
                return run()  # not where one is handled: it would be the context of an error
            result = self._perform_whole(whole, run)
            flags = whole.flags | self.observer.take()
            try:
                with unheard():
                    self._after_whole(op, result, flags, whole)
            except Exception as e:  # noqa: BLE001 - it must not reach the program
                self.fail(e)
            return result
        finally:
            op.forget()

    def _prepare_whole(
        self, op: Operation, whole: Whole, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        func = op.func
        self._whole = whole
        try:
            with unheard():
                target = getattr(func, "__magpy_target__", func)
                if self.below.written():
                    raise refuse(
                        "the call has changed an object from outside before it calls a function "
                        "that magpy records as one operation, and that may look at the object",
                        FILLED if self.below.only_fills() else "",
                    )
                whole.given(target, args, kwargs)
                op.func, args, kwargs = opened(func, args, kwargs, self._is_outside)
                op.given = args, kwargs
                self._prepare(op, args, kwargs, follow=False)
                whole.begin(target, args, kwargs)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        finally:
            self._whole = None

    def _perform_whole(self, whole: Whole, run: Callable[[], Any]) -> Any:
        self.observer.take()
        self.gradients.unseen()
        self.depth += 1
        self.whole = whole
        try:
            return run()
        except Exception:
            if (whole.flags | self.observer.take()) & _LOOKS or whole.looks:
                # In another call it may not raise.
                self.refusals.refuse(f"{_DATA_INSIDE}, and raises an exception")
            raise
        finally:
            self.depth -= 1
            self.whole = None

    def _after_whole(self, op: Operation, result: Any, flags: int, whole: Whole) -> None:
        if flags & _LOOKS or whole.looks:
            # What it does to Python's objects, and whether it raises, was seen for this data only.
            raise refuse(_DATA_INSIDE, "Do that outside of it, in the compiled function")
        written = whole.written(unseen=bool(flags & (_STATISTICS | _SEVERAL)))
        op.by_whole = frozenset(map(self.tensors.var_of, written))
        op.name = getattr(op.func, "__name__", "")
        self._emit(op, result, self._classify(op, result, flags & ~_DATA))
        step = self.record.steps[-1] if self.record.steps else None
        if isinstance(step, OpStep) and is_hook_function(op.func):
            self.hooks.made(self.record, result, self.tensors.known)
        elif isinstance(step, (OpStep, HostStep)) and step.func is op.func:
            step.unrepeatable = step.unrepeatable or whole.unrepeatable
            if isinstance(step, OpStep):
                step.whole, step.where = True, where_text(2)
                if op.unseen:
                    self._form_is_asked_for(op, step, result)

    def _form_is_asked_for(self, op: Operation, step: OpStep, result: Any) -> None:
        """What a whole call gives for other sizes must be like what it gave here."""
        made = {self.tensors.known(t): t for t in tensors(result)}
        outs = [v for _, v in step.outs]
        form = None
        if outs:
            with contextlib.suppress(UnknownFormError):
                form = Form(result, op.given)
        if form is None or not made.keys() <= {*outs, *variables(op.plan)}:
            self._pin_shapes(tensors(op.given))
            if self.symbols is not None:
                self.symbols.fix_all()
            return
        step.func = form.of(step.func)
        self.note(form.holds, tuple(map(Ref, outs)), {}, CheckValue, True)
        if not self._scalars:
            for var in outs:
                self._sizes_are_asked_for(made[var], var, as_data=True)

    def transform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a part of a transform, which is recorded as an operation."""
        if self.depth or self.refusals.first is not None:
            return func(*args, **kwargs)
        op = self.operation = Operation(func, func.__name__)
        try:
            faults.check("recorder")
            with unheard():
                self._prepare_transform(op, args, kwargs)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        if self._stopped():
            return func(*args, **kwargs)
        self.depth += 1
        try:
            result = func(*args, **kwargs)
        finally:
            self.depth -= 1
            self.observer.take()
        try:
            outs: list[tuple[Any, Var]] = []
            with unheard():
                self._outputs(result, (), outs)
                if not self.transforms.after(func, len(self.record.steps)):
                    if outs:
                        raise refuse(
                            "a torch.func transform (grad, vmap, jvp, ...) began before the "
                            "compiled call, and the call computes with its tensors",
                            "Compile the function that makes the transform",
                        )
                elif outs or switches(func):
                    if self._follower is not None and outs:
                        self._follower.after(result, outs, graph=True)
                    self.add(OpStep(func, *op.plan, outs))
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        op.forget()
        return result

    def _prepare_transform(self, op: Operation, args: tuple[Any, ...], kwargs: Any) -> None:
        # What changes the thread's state is not done twice.
        self._prepare(op, args, kwargs, follow=None if switches(op.func) else True)
        self.note_modes()
        self.transforms.before()
        for t in tensors(args):
            self.transforms.given(self.tensors.var_of(t), t)

    def unseen_result(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        writes: bool = False,
    ) -> None:
        """A C function returned tensors and no mode saw it: record the call, after the fact.

        Args:
            func: the function.
            args: the positional arguments.
            kwargs: the keyword arguments.
            result: what it gave.
            writes: it may write to the tensors among its arguments.
        """
        if self.depth or self.refusals.first is not None:
            return
        if not writes and not self.tensors.fresh(result):
            return
        func, args, kwargs = sized(func, args, kwargs)
        own = getattr(func, "__self__", None)
        if isinstance(own, torch.Generator):
            func, args = callables.unbound(func), (own, *args)
        op = self.operation = Operation(func)
        with unheard():
            self._unseen(op, args, kwargs, result, writes)
        op.forget()

    def _unseen(
        self,
        op: Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        writes: bool,
    ) -> None:
        func = op.func
        self._prepare(op, args, kwargs, follow=False)
        outs: list[tuple[Any, Var]] = []
        self._outputs(result, (), outs)
        self.note_modes()
        plan = self._sharing(op, result)
        flags = self.observer.take()  # those since the last operation
        # What a generator says of its state is another thing after each draw.
        asks = isinstance(args[0] if args else None, torch.Generator)
        is_random, mutates = asks or bool(flags & _RANDOM), bool(flags & _MUTATES) or writes
        self.record.random = self.record.random or is_random
        self._writes = self._written_unseen(func, *plan, flags)
        if writes:
            self._writes |= variables(plan)
            self._shared.written(plan)
        by_data = bool(flags & (_DATA | _DYNAMIC)) or op.resized
        loose = by_data and (self._form_follows(func, plan, by_data) or bool(outs))
        if outs and self._sized and not variables(plan).isdisjoint(self._sized):
            loose = True
        elif not op.resized and (self._loose or (loose and self._scalars)):
            loose = self._loosen(getattr(func, "__name__", ""), plan, result, outs, loose)
        if op.on_host or loose or _has_array(args):
            self._host(func, plan[0], plan[1], result, outs, is_random, "", mutates, loose)
            return
        if self._follower is not None:
            self._follower.after(result, outs, graph=True)
        step = OpStep(func, *plan, outs, random=is_random, mutates=mutates, leaves=op.leaf)
        self.add(step)


def _has_array(args: Any) -> bool:
    return any(type(a).__module__ == "numpy" for a in args)


__all__ = ["UnseenCalls"]
