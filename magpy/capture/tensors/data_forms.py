"""Forms that follow from data: tensors whose sizes an operation has found in what others hold.

Owns which variables have such a form, what is checked where the program looks at one, and the
numbers of a list that follows from data.  Does not own sizes as symbols
(magpy/shapes/data_dependent.py) nor which operations look at data
(magpy/capture/tensors/writer.py, which derives from this).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from magpy.capture.tensors.arguments import Values
from magpy.capture.tensors.operation import Operation
from magpy.ir.ops import (
    Bind,
    CheckMetadata,
    CheckSizes,
    CheckValue,
    Ref,
    Var,
    identity,
)
from magpy.ir.tensor_meta import tensor_meta
from magpy.ir.trees import tensors, variables
from magpy.models.torch_ops import (
    MAY_SHARE,
    SPLITS,
    resizable,
)
from magpy.objects.jagged import NestedTensor, is_jagged, laid_out
from magpy.objects.number_lists import form_of
from magpy.objects.types import isinstance
from magpy.shapes.symbols import Symbols

_MUTATES = 8


class DataForms(Values):
    """Tells of the variables of one run whether their shapes follow from data.

    Args:
        is_outside: says whether an object existed before the call and was reached by it.
        session: the C++ session, which knows the values that differ from call to call by their
            identity.
        scalars: whether a graph may take Python numbers as inputs.
        symbols: the sizes and numbers that vary from call to call; None if there are none.
    """

    def __init__(
        self,
        is_outside: Callable[[Any], bool],
        session: Any,
        scalars: bool,
        symbols: Symbols | None,
    ) -> None:
        """No operation was performed yet."""
        super().__init__(is_outside, session, symbols, scalars)
        self._scalars = scalars
        self._loose = self.tensors.unsized
        self._ever_loose = self.tensors.ever_unsized
        # Of the step that is about to be added: see `OpStep.writes`.
        self._writes: frozenset[Var] = frozenset()

    def is_loose(self, found: set[Var]) -> bool:
        """Whether the shape of one of these variables follows from data."""
        return bool(found & self._loose)

    def _pin_shapes(self, args: Any) -> None:
        """Shapes that follow from data are looked at: from here on they must be what they are."""
        for a in args:
            if is_jagged(a):
                continue  # what is read of its sizes is asked again
            if isinstance(a, torch.Tensor):
                var = self.tensors.known(a)
                if var is not None and var in self._loose:
                    self._loose.discard(var)
                    self._sizes_are_asked_for(a, var)
            elif isinstance(a, (tuple, list)):
                self._pin_shapes(a)

    def _sizes_are_asked_for(self, tensor: Any, var: Var, as_data: bool = False) -> None:
        """From here on a tensor must have these sizes, or such as fit what is known of them.

        Args:
            tensor: the tensor.
            var: its variable.
            as_data: how autograd sees it is not compared: a compiled block makes no views.
        """
        read = torch.Tensor.detach if as_data else identity
        seen = tensor.detach() if as_data else tensor
        followed = self._of_data.sizes(read, 1, tensor, [var], seen)
        if followed is None:
            self.note(read, (Ref(var),), {}, CheckMetadata, tensor_meta(seen))
        else:
            self.note(followed[0], (Ref(var),), {}, CheckSizes, followed[1])

    def _pin_if_given_back(self, op: Operation, result: Any, flags: int) -> None:
        """An operation gave back what it was given: of other sizes it may make something new.

        `contiguous()` of a single row does, and dropout of none.
        """
        if not self._loose or flags & _MUTATES:
            return
        given = variables(op.plan)
        if self.is_loose(given):
            back = [t for t in tensors(result) if self.tensors.known(t) in given]
            self._pin_shapes(back)
            for t in filter(is_jagged, back):
                form = Ref(self.tensors.var_of(t))
                self.note(laid_out, (form,), {}, CheckValue, laid_out(t))

    def _compare_sizes(self, op: Operation) -> None:
        """Data has decided the sizes of what the operation wrote to: they must be what they are."""
        for t, _ in op.targets:
            var = self.tensors.known(t)
            if var is not None:
                self.note(identity, (Ref(var),), {}, CheckMetadata, tensor_meta(t))

    def _list_of_data(self, func: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Follows the numbers of a list that follows from data, in place of comparing the list.

        Args:
            func: what gave it.
            args: its arguments as a step keeps them.
            kwargs: likewise.
            result: the list, nested or not, which gets equal numbers.

        Returns:
            Whether it did.
        """
        if not self._of_data.takes_list(result):
            return False
        if self.symbols is not None:
            # Known before anything is computed: an entry for another length runs in vain.
            self.symbols.fix(variables(args))
        var = self.tensors.new()
        self.note(func, args, kwargs, Bind, list, result=var)
        self.note(form_of, (Ref(var),), {}, CheckValue, form_of(result))
        self._follow_items(var, result)
        return True

    def _follow_items(self, var: Var, found: list[Any]) -> None:
        for i, x in enumerate(found):
            if type(x) is list:
                inner = self.tensors.new()
                self.note(operator.getitem, (Ref(var), i), {}, Bind, list, result=inner)
                self._follow_items(inner, x)
            else:
                found[i] = self.track(operator.getitem, (Ref(var), i), {}, x)

    def _form_follows(self, func: Any, plan: tuple[Any, Any], by_data: bool) -> bool:
        """Whether an operation may give tensors that were there before sizes that follow from data.

        From here on they count as such.

        Args:
            func: the operation, which has been done.
            plan: its arguments.
            by_data: the operation itself looks at data.
        """
        if not (by_data or self._loose):
            return False
        found = variables(resizable(func, *plan)) | (self._writes if by_data else frozenset())
        if not found or not (by_data or self.is_loose(variables(plan))):
            return False
        if self._scalars:
            self.tensors.sized_by_data(found)
        return True

    def _counted(self, name: str, plan: Any) -> bool:
        """Whether an operation gives a tensor for each sequence of a jagged one."""
        types = self.record.types
        return name == "unbind" and any(types.get(v) is NestedTensor for v in variables(plan))

    def _count_sequences(self, name: str, plan: Any, result: Any) -> None:
        """The run relies on how many sequences a jagged tensor has, which is taken apart."""
        if self._counted(name, plan):
            (tensor,) = variables(plan)
            number = self.track(torch.Tensor.size, (Ref(tensor), 0), {}, len(result))
            var = self.tracked(number)
            if var is not None:
                self.rely_on(number, var)

    def _loosen(
        self, name: str, plan: Any, result: Any, outs: list[tuple[Any, Var]], by_data: bool
    ) -> bool:
        """Notes that the shapes of results follow from data; True if even how many there are does.

        Args:
            name: the operation.
            plan: its arguments.
            result: its results.
            outs: the new tensors among them.
            by_data: the operation itself looks at data.
        """
        if not by_data and not self.is_loose(variables(plan)):
            return False
        # Only what takes a tensor apart gives as many tensors as its shape says.
        many = outs and name in SPLITS and not isinstance(result, torch.Tensor)
        if many and not self._counted(name, plan):
            return True
        self.tensors.sized_by_data(v for _, v in outs)
        if name in MAY_SHARE:
            # Of other sizes the results may share memory with the arguments, or not.
            self.tensors.may_share(outs, plan)
        return False


__all__ = ["DataForms"]
