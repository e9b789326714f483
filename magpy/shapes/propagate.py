"""Following sizes that vary through the operations of a watched run.

Owns what is done beside each operation and each read of metadata, so that the program and the steps
get numbers whose symbols are known.  Does not own the symbols themselves (magpy/shapes/symbols.py)
nor the steps (magpy/capture/tensors/writer.py, which calls this).

What an operation is given that cannot be followed through it ends in `Symbols.fix`: those sizes are
then what they are in this run. Where it is not known which sizes are concerned, all are.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from magpy import _interp, _tensor
from magpy.ir.ops import Ref, Var
from magpy.ir.trees import has_function, leaves, variables
from magpy.models.torch_ops import MOVES, operation_name, resizable
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.shapes.arithmetic import hint, is_open, plain, symbolic_form
from magpy.shapes.fake_ops import CannotFollowError, SizedByDataError, hides_a_number, wrapped
from magpy.shapes.symbols import Symbols

# What tells of one dimension what a read of metadata tells of all.
#: What kernels choose where a size is 1.
_OF_LAYOUT = frozenset(["stride", "is_contiguous", "data_ptr", "__dlpack__"])
_DIMENSIONS = {"shape": torch.Tensor.size, "size": torch.Tensor.size, "stride": torch.Tensor.stride}


class Recording(Protocol):
    """What the recorder does for sizes (magpy/capture/tensors/recorder.py)."""

    #: The variables of the tensors.
    tensors: Any
    #: Whether operations are done by Python and by no compiler.
    direct: bool

    @property
    def generators(self) -> dict[Var, torch.Generator]:
        """The random generators that are variables."""

    def new_number(self, func: Any, args: tuple[Any, ...], value: Any) -> tuple[Any, Var]:
        """A number that a step computes in each call, as an object of its own, and its variable."""

    def tracked(self, value: Any) -> Var | None:
        """The variable of a value that a step computes in each call."""

    @property
    def transformed(self) -> bool:
        """Whether a transform of torch.func has begun."""

    def is_loose(self, found: set[Var]) -> bool:
        """Whether sizes of one of these follow from data."""


class Follower:
    """Follows the symbols of one run.

    Args:
        recorder: writes down the steps.
        symbols: the symbols of the run.
    """

    def __init__(self, recorder: Recording, symbols: Symbols) -> None:
        """Nothing was done yet."""
        self._recorder = recorder
        self._symbols = symbols
        # What the operation that runs now gives for fake tensors: ABSENT if no symbol is concerned,
        # MISS if it cannot be done.
        self._fake: Any = _interp.ABSENT
        # Whether what it asks of sizes is known, even if it cannot be done.
        self._known = True
        # What it is given.
        self._found: set[Var] = set()
        # The tensors among that, with their forms.
        self._forms: list[tuple[Var, weakref.ref[Any], Any]] = []
        # Those among them to which it may give other sizes, with what their sizes follow from.
        self._sized: dict[Var, str] = {}
        # The variables whose gradients it gives.
        self._gradients_of: tuple[Var, ...] = ()
        # The operation at hand makes a tensor a view of what it was.
        self._moves = False
        # Nobody sees how the sizes of what it gives follow.
        self._unseen = False

    # ------------------------------------------------------------- numbers

    def number(self, func: Any, args: tuple[Any, ...], result: Any) -> Any:
        """`result`, or its equal, where it is known how it follows from symbols; else ABSENT."""
        symbols, found = self._symbols, variables(args)
        if not found or not found <= symbols.numbers.keys():
            return _interp.ABSENT
        try:
            value = symbols.compute(func, args)
        except Exception:  # noqa: BLE001 - whatever torch cannot do with symbols
            symbols.fix_all()
            return result
        if value is None:
            return _interp.ABSENT
        if type(hint(value)) is not type(result) or hint(value) != result:
            symbols.fix_all()
            return result
        if not is_open(value):
            return result
        return self._new(symbolic_form(func), args, value, result)

    def _new(self, func: Any, args: tuple[Any, ...], symbol: Any, value: Any) -> Any:
        value, var = self._recorder.new_number(func, args, value)
        self._symbols.numbers[var] = symbol
        return value

    # ------------------------------------------------------------- metadata

    def metadata(self, func: Any, args: Any, kwargs: Any, name: str, result: Any) -> Any:
        """What the program gets where it reads sizes: numbers that are followed.

        Args:
            func: the read, given `args` and `kwargs`.
            args: tensors and plain values.
            kwargs: plain values.
            name: the name of the method or attribute.
            result: what it gave.
        """
        symbols = self._symbols
        given = tuple(self._converted(a) for a in args)
        if not symbols.concerns(variables((given, kwargs))):
            return result
        try:
            with unheard():
                if name == "stride" and 1 in args[0].shape:
                    raise CannotFollowError("kernels choose the stride of a dimension of size 1")
                if name in _OF_LAYOUT:
                    symbols.none_is_one(variables(given))
                fake = symbols.operation(func, given, kwargs, self._given(args), reads=True)
                return self._sizes(result, fake, (*given, *kwargs.values()), name)
        except Exception:  # noqa: BLE001 - whatever torch cannot do with fake tensors
            symbols.fix(variables((given, kwargs)))
            return result

    def _converted(self, v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return Ref(self._recorder.tensors.var_of(v))
        return type(v)(map(self._converted, v)) if type(v) in (tuple, list) else v

    def _given(self, values: Any) -> Callable[[Var], Any]:
        """What a variable among arguments is in this run, unless it holds symbols.

        A number that differs from call to call is only given to operations whose results look the
        same whatever it is (`ARITHMETIC`).
        """
        known, tracked = self._recorder.tensors.known, self._recorder.tracked
        by_var: dict[Var | None, Any] = {
            known(v) if isinstance(v, torch.Tensor) else tracked(v): v
            for v in leaves(values)
            if isinstance(v, (torch.Tensor, int, float))
        }
        by_var.update(self._recorder.generators.items())
        return by_var.get

    def _sizes(self, result: Any, fake: Any, given: tuple[Any, ...], name: str) -> Any:
        step: tuple[Any, tuple[Any, ...]] | None
        if isinstance(result, tuple):
            items = []
            for i, (r, f) in enumerate(zip(result, fake, strict=True)):
                step = (_DIMENSIONS[name], (given[0], i)) if name in _DIMENSIONS else None
                items.append(self._size(r, f, step))
            return type(result)(items)
        step = None
        if name in ("numel", "nelement"):
            step = torch.Tensor.numel, given[:1]
        elif name == "__len__":
            step = torch.Tensor.size, (given[0], 0)
        elif name in _DIMENSIONS and len(given) == 2 and type(given[1]) is int:
            step = _DIMENSIONS[name], given
        return self._size(result, fake, step)

    def _size(self, value: Any, fake: Any, step: Any) -> Any:
        if hint(fake) != value:
            raise CannotFollowError("a fake tensor is not like the tensor")
        if not is_open(fake) or step is None or type(value) is not int:
            plain(fake)
            return value
        func, args = step
        if self._recorder.transformed:
            # Nothing is asked of a transform's tensors in the middle of it.
            func, args = self._symbols.read(fake)
        return self._new(func, args, fake, value)

    # ------------------------------------------------------------- operations

    def before(
        self,
        func: Any,
        plan: tuple[Any, Any],
        given: Any,
        follow: bool,
        on_host: bool = False,
        gradients_of: tuple[Any, ...] = (),
        whole: bool = False,
    ) -> None:
        """Does an operation with fake tensors, if sizes that vary are concerned.

        In a transform of torch.func each operation is done: what was done to a tensor decides what
        a gradient is, whatever its sizes.

        Args:
            func: the operation.
            plan: its arguments as a step keeps them.
            given: its arguments.
            follow: it may be done twice.
            on_host: Python does it, of numbers; nothing of what it gives follows from them but its
                data.
            gradients_of: it gives the gradients of these tensors, which are as large as they are.
            whole: Python of the program runs in it, which is called again whatever the sizes are.
        """
        self._unseen = False
        self._fake, self._known = _interp.ABSENT, True
        self._forms, self._sized = [], {}
        self._gradients_of = ()
        self._moves = operation_name(func) in MOVES
        symbols = self._symbols
        found = self._found = variables(plan)
        if symbols.fixed:
            return
        self._note_forms(given)
        if on_host:
            return
        concerned, loose = symbols.concerns(found), self._recorder.is_loose(found)
        if gradients_of and not (loose or self._recorder.transformed):
            # What is no tensor makes it raise.
            self._gradients_of = tuple(r.var for r in gradients_of if isinstance(r, Ref))
            return
        if self._recorder.transformed:
            if concerned and loose:
                symbols.fix_all()
            if loose or not (concerned or (follow and _may_run_twice(func, plan))):
                return  # and nothing stands for what it gives
        elif not concerned or loose:
            self._unseen = whole and loose
            return
        if not (follow and _may_run_twice(func, plan)):
            if whole and not self._recorder.transformed:
                self._unseen = True
            else:
                symbols.fix_all()
            return
        self._fake = _interp.MISS
        known = self._recorder.tensors.known
        with unheard():
            targets = variables(resizable(func, *plan))
            for v in leaves(given) if targets else ():
                var = known(v) if isinstance(v, torch.Tensor) else None
                if var in targets:
                    self._sized[var] = str(symbols.fakes.get(var, v).shape)
        try:
            with unheard():
                fake = symbols.operation(func, *plan, self._given(given))
        except SizedByDataError:
            return
        except CannotFollowError:
            self._known = False
            return
        if fake is not None or _writes_only(func):
            self._fake = fake

    def _note_forms(self, given: Any) -> None:
        """Notes the forms of the tensors that an operation is given: it may change them."""
        known = self._recorder.tensors.known
        with unheard():
            for v in leaves(given):
                var = known(v) if isinstance(v, torch.Tensor) else None
                if var is not None:
                    self._forms.append((var, weakref.ref(v), _form(v)))

    def is_lost(self, outs: list[tuple[Any, Var]], mutates: bool) -> bool:
        """Whether the sizes of an operation's results are to be taken for ones of data.

        torch has no fake kernel for the operation, or one that takes less than the kernel does.

        Args:
            outs: the new tensors among the results.
            mutates: the operation changes what it is given.
        """
        lost = not self._known and bool(outs) and not (mutates or self._sized)
        lost = lost and not self._recorder.transformed  # no check is made in the middle of one
        if lost:
            self._symbols.follow_data()
        return lost

    def is_unseen(self, written: frozenset[Var]) -> bool:
        """Whether nobody has seen how the sizes of a whole call's results follow.

        Args:
            written: what it has written to, and may have resized.
        """
        unseen = self._unseen and not self._symbols.fixed
        if unseen and self._symbols.concerns(written):
            self._symbols.fix_all()
            return False
        if unseen:
            self._symbols.follow_data()
        return unseen

    def drew(self, result: Any, outs: list[tuple[Any, Var]]) -> None:
        """The operation has drawn within a transform, which may give as many as `vmap` says.

        Args:
            result: the results.
            outs: as of `after`.
        """
        found = [_at(self._fake, path) for path, _ in outs] if self._fake_is_known() else []
        if len(found) < len(outs) or any(map(hides_a_number, found)):
            self._symbols.fix_all()

    def _fake_is_known(self) -> bool:
        return self._fake is not _interp.ABSENT and self._fake is not _interp.MISS

    def after(
        self,
        result: Any,
        outs: list[tuple[Any, Var]],
        graph: bool,
        looks: bool = False,
        writes: bool = False,
    ) -> None:
        """Notes what stands for the new tensors among the results of an operation.

        Args:
            result: the results.
            outs: where in them the new tensors are, and their variables.
            graph: a graph holds the operation; else its results are compared in every call.
            looks: it gives a value that is compared in every call, and does nothing else: whatever
                the sizes, an entry is left where the value is another one.
            writes: it writes to the data of what it is given.
        """
        symbols = self._symbols
        if symbols.fixed:
            return
        if not (graph or looks) and self._fake_is_known():
            given = leaves(self._fake) if writes else [_at(self._fake, path) for path, _ in outs]
            fakes = [t for t in given if isinstance(t, torch.Tensor)]
            if any(isinstance(n, torch.SymInt) for t in fakes for n in t.shape):
                # Python does it, of a number: what follows from that is not told from the sizes.
                self._fix(result, outs)
                return
        try:
            with unheard():
                self._note(result, outs, graph, self._known or looks)
        except Exception:  # noqa: BLE001 - whatever torch cannot do with fake tensors
            self._fix(result, outs)

    def _fix(self, result: Any, outs: list[tuple[Any, Var]]) -> None:
        """The operation cannot be followed: what it was given is what it is in this run."""
        symbols = self._symbols
        if self._sized:  # how large the fake ones are by now is not known
            symbols.fix_all()
            return
        symbols.fix(self._found)
        self._fake = _interp.ABSENT
        self._gradients_of = ()
        try:
            with unheard():
                self._note(result, outs, graph=True, known=True)
        except Exception:  # noqa: BLE001 - as above
            symbols.fix_all()

    def _note(self, result: Any, outs: list[tuple[Any, Var]], graph: bool, known: bool) -> None:
        symbols = self._symbols
        if self._fake is _interp.MISS and (graph or not known):
            raise CannotFollowError("the operation cannot be done with fake tensors")
        for var, ref, form in self._forms:
            tensor = ref()
            if tensor is not None and (_form(tensor) != form or self._resizes(var)):
                self._formed(var, tensor, graph)
            if tensor is not None:
                symbols.requires_grad(var, tensor.requires_grad)
        for path, var in outs:
            tensor = _at(result, path)
            if self._gradients_of:
                symbols.gradient(self._gradients_of[path[0] if path else 0], var, tensor)
                continue
            if not graph or self._fake is _interp.ABSENT:
                symbols.still(var, tensor)
                continue
            fake = _at(self._fake, path)
            if not _like(fake, tensor):
                raise CannotFollowError("a fake tensor is not like the tensor")
            symbols.note(var, _as_laid_out(symbols, self._found, fake, tensor))

    def compared(self, result: Any, outs: list[tuple[Any, Var]]) -> list[Any] | None:
        """What is compared of gradients, and of tensors that an operation gives back.

        That is not the sizes that are followed; None if none is.

        Args:
            result: a tensor, or several and None.
            outs: as of `after`.
        """
        symbols = self._symbols
        if symbols.fixed or (outs and not self._gradients_of):
            return None
        found = [result] if isinstance(result, torch.Tensor) else result
        if any(t is not None and not isinstance(t, torch.Tensor) for t in found):
            return None
        with unheard():
            known = [None if t is None else self._recorder.tensors.known(t) for t in found]
            masks = [0 if v is None else symbols.open_dimensions(v) for v in known]
            if not any(masks):
                return None
            return [
                None if t is None else _tensor.TensorMeta(t, dims=mask)
                for t, mask in zip(found, masks, strict=True)
            ]

    def _resizes(self, var: Var) -> bool:
        """Whether an operation that left a tensor as large as it was may resize it another time."""
        if var not in self._sized:
            return False
        fake = self._symbols.given.get(var)
        return self._fake is _interp.MISS or fake is None or str(fake.shape) != self._sized[var]

    def _formed(self, var: Var, tensor: Any, graph: bool) -> None:
        """Notes the form that an operation has given to a tensor that was there before."""
        symbols = self._symbols
        if self._fake is _interp.ABSENT:
            symbols.still(var, tensor)
            return
        fake = symbols.given.get(var)
        # A compiler takes the tensor for one of its old size where it reads that afterwards, and
        # TorchInductor an input as well that becomes a view of itself.
        moves = self._moves and not symbols.is_outside(var)
        if (
            not (moves or self._recorder.direct)
            or not graph
            or fake is None
            or not _like(fake, tensor)
        ):
            raise CannotFollowError("an operation gives a tensor another form")
        symbols.note(var, fake)


def _form(tensor: Any) -> Any:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return tensor.shape, tensor.stride()


def _writes_only(func: Any) -> bool:
    """Whether an operation that gives nothing only writes values into what it is given."""
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or name.startswith("_foreach_")


def _at(result: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        result = getattr(result, key) if key == "data" else result[key]
    return result


def _as_laid_out(symbols: Symbols, found: set[Var], fake: Any, tensor: torch.Tensor) -> Any:
    """The fake tensor, with the strides that the kernel has kept where a size is 1.

    `images / 255` of one image lies as the image does, also where the batch's stride is no multiple
    of anything. torch's fake kernel computes such strides, and a convolution goes by them.

    Args:
        symbols: the symbols of the run.
        found: the variables that the operation is given.
        fake: what it gives for fake tensors.
        tensor: what it has given.
    """
    ones = [d for d, n in enumerate(fake.shape) if type(n) is int and n == 1]
    strides = fake.stride()
    if wrapped(fake) or fake._is_view() or all(hint(strides[d]) == tensor.stride(d) for d in ones):
        return fake
    for var in found:
        given = symbols.fakes.get(var)
        if given is None or given.layout is not torch.strided:
            continue
        kept = given.stride()
        if _same_sizes(given.shape, fake.shape) and all(
            hint(a) == b for a, b in zip(kept, tensor.stride(), strict=True)
        ):
            return symbols.laid_out(fake, kept)
    return fake


def _same_sizes(a: Any, b: Any) -> bool:
    """Whether two shapes are equal whatever their symbols are; nothing becomes a condition."""

    def told(n: Any) -> Any:
        return n.node.expr if isinstance(n, torch.SymInt) else n

    return len(a) == len(b) and all(told(x) == told(y) for x, y in zip(a, b, strict=True))


def _like(fake: Any, tensor: Any) -> bool:
    """Whether a fake tensor stands for one of these sizes and strides.

    Kernels give dimensions of size 1 strides of their own.
    """
    return (
        isinstance(fake, torch.Tensor)
        and fake.dtype == tensor.dtype
        and fake.device == tensor.device
        and fake.layout is tensor.layout is torch.strided
        and tuple(map(hint, fake.shape)) == tuple(tensor.shape)
        and all(
            hint(a) == b or n == 1
            for a, b, n in zip(fake.stride(), tensor.stride(), tensor.shape, strict=True)
        )
    )


# What these do shows: they run code of the program, or number a hook.
_ONCE = frozenset(["apply", "register_hook", "register_post_accumulate_grad_hook"])


def _may_run_twice(func: Any, plan: tuple[Any, Any]) -> bool:
    """Whether an operation is one of torch's, which runs no code of the program."""
    if has_function(plan):
        return False
    if isinstance(func, types.FunctionType):
        own = func.__module__.partition(".")[0] in ("torch", "magpy")
        return own and func.__name__ not in _ONCE
    owner = getattr(func, "__self__", None)
    return not isinstance(owner, type) or owner.__module__.partition(".")[0] == "torch"


__all__ = ["Follower"]
