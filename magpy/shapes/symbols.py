"""Symbols: sizes and numbers that vary from call to call, followed through one watched run.

Owns the shape environment of a run, the fake tensors on which operations are done a second time to
learn how sizes depend on those of the arguments, the symbols of numbers, and the conditions that
all this put on them.  Does not own what is computed with numbers (magpy/shapes/arithmetic.py), what
an operation with fake tensors needs around it (magpy/shapes/fake_ops.py), which sizes and numbers
vary (magpy/shapes/speculation.py), nor what is done when (magpy/shapes/propagate.py), nor the
compiler that works on the fake tensors afterwards (magpy/runtime/entry.py) and may add conditions.

A symbol stands for a size of one or more, a stride of two or more, or an integer; what the program
or a compiler finds out about it becomes a condition of the entry: that a size is not 1, too, but
where that makes no difference.  Where something cannot be followed, its symbols are fixed to the
values of the run, which is always right.
Source: torch.fx.experimental.symbolic_shapes,
https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import torch

from magpy import _interp, _tensor
from magpy.errors import an
from magpy.frames.locations import Place, place_of_program
from magpy.ir.capture import Dims
from magpy.ir.ops import OutsideRef, Ref, Var, identity
from magpy.ir.trees import rebuilt, tensors, variables
from magpy.models.torch_ops import (
    ARITHMETIC,
    goes_by_data,
    operation_name,
)
from magpy.objects.imports import imported
from magpy.objects.quiet import apart
from magpy.objects.types import isinstance
from magpy.shapes.arithmetic import computed, has_form, hint, plain
from magpy.shapes.conditions import Checked, Computed, Conditions, Read, Source
from magpy.shapes.environment import LEAST, any_size, environment, is_not_one, operated
from magpy.shapes.fake_ops import (
    CannotFollowError,
    SizedByDataError,
    inference_of,
    is_generator,
    keys_kept,
    masks_fit,
    sizes_of,
    uncached,
    unlogged,
    wrapped,
)
from magpy.shapes.loop_indices import Indices
from magpy.shapes.repeated import Repeated, in_transform, requiring

# Larger numbers could leave the 64 bits that compilers compute with.
_LARGEST = 1 << 20
# What has no memory has no address: to ask a fake tensor for one warns.
_ADDRESSES = frozenset(["data_ptr"])


class _Located(list[Any]):
    """The conditions that torch finds, each with the place in the program where that was.

    Attributes:
        places: for each condition; None for those that a compiler finds.
    """

    def __init__(self, symbols: Symbols) -> None:
        """None were found yet."""
        super().__init__()
        self._symbols = weakref.ref(symbols)  # conditions are kept for longer than the run
        self.places: list[Place | None] = []

    def append(self, guard: Any) -> None:
        """Adds a condition."""
        super().append(guard)
        symbols = self._symbols()
        place = None if symbols is None else symbols.place
        if place is None and _interp.session_active():
            place = place_of_program()
        if symbols is not None and is_not_one(guard.expr, symbols.env.sizes):
            place = None  # sizes of 1 are a way of their own, wherever that matters
        self.places.append(place)
        if symbols is None or place is None:
            return
        fixed = _fixed(guard.expr) in symbols.turns and not place.decides()
        if fixed or (symbols.not_at and str(place) in symbols.not_at):
            symbols.refuse()


class Symbols:
    """The symbols of one run.

    Args:
        sizes: for tensors, by identity: what varies of them.
        data: whether sizes and integers that follow from data are followed, too.
        alike: by identity, the rows that tensors stand in (`Varying.alike`). What varies of a row
            is one symbol where it is equal, so that what each layer does is done once
            (magpy/shapes/repeated.py).
    """

    def __init__(
        self,
        sizes: dict[int, Dims],
        data: bool = False,
        alike: dict[int, tuple[Any, ...]] | None = None,
    ) -> None:
        """No symbol yet."""
        self.sizes = sizes
        self._alike = alike or {}
        # By row, read, dimension and value: the symbol, as the environment's and as an integer.
        self._in_row: dict[Any, tuple[Any, Any]] = {}
        # By symbols that stand only for a source: the environment's that they are equal to.
        self._equal: dict[Any, Any] = {}
        self._data = data
        #: The conditions that are checked where something follows from data (`Checked`).
        self.checks: list[Conditions] = []
        #: The fake tensors by variable, and the variables whose sizes hold symbols.
        self.fakes: dict[Var, Any] = {}
        self.symbolic: set[Var] = set()
        #: The fake tensors that the last operation was given, by variable.
        self.given: dict[Var, Any] = {}
        #: The symbols (torch.SymInt, torch.SymFloat) by variable.
        self.numbers: dict[Var, Any] = {}
        #: The numbers from outside that are followed, by variable.
        self.outside: dict[Var, Any] = {}
        self.sources: list[Source] = []
        self.indices = Indices(self)
        self._repeated = Repeated(self.indices)
        #: Something could not be followed: no symbol is free.
        self.fixed = False
        #: The places at which no condition may be put on a symbol, and what refuses the run there.
        self.not_at: set[str] = set()
        self.refuse: Callable[[], object] = bool
        #: The symbols that may not be fixed anywhere in the program (`Varying.turns`).
        self.turns: set[Any] = set()
        #: Where conditions come from that are found elsewhere than the program is.
        self.place: Place | None = None

    def form(self, var: Var, tensor: Any = None) -> Any:
        """What the program, or an operation, can tell of a variable: two are alike if it is equal.

        Where it lies in its memory does not count, nor what a number is.

        Args:
            var: the variable.
            tensor: what it is if it is from outside; else None.
        """
        if var in self.numbers:
            return "number"
        fake = self.fakes.get(var, tensor)
        if fake is None:
            return object()
        with torch._C.DisableTorchFunction():
            numbers = tuple(map(_expr, (*fake.shape, *fake.stride())))
            return numbers, fake.dtype, fake.device, fake.requires_grad, fake.is_inference()

    def made_like(self, fake: Any) -> Any:
        """Another fake tensor of these sizes and strides."""
        return self._made(fake.shape, fake.stride(), fake)

    def laid_out(self, fake: Any, strides: tuple[Any, ...]) -> Any:
        """Another fake tensor of these sizes, and of other strides."""
        return self._made(fake.shape, strides, fake)

    def turn_by(self, numbers: set[Var | None]) -> None:
        """These numbers from outside are others in each turn of a loop (`Varying.turns`)."""
        self.turns = {s.symbol for s in self.sources if s.var in numbers}

    def is_outside(self, var: Var) -> bool:
        """Whether something of a tensor from outside is followed."""
        return any(s.var == var and s.outside is not None for s in self.sources)

    @functools.cached_property
    def env(self) -> Any:
        """The environment, for which torch imports a lot when it is first needed."""
        imported("torch._dynamo.source", "torch.fx.experimental.symbolic_shapes")
        env = environment()(
            duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        env.guards = _Located(self)
        return env

    @functools.cached_property
    def mode(self) -> Any:
        """The mode of the fake tensors."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode(shape_env=self.env)
        # With symbols, to look up an operation in torch's own memory takes as long as to do it.
        mode.cache_enabled = False
        return mode

    # ------------------------------------------------------------- where symbols come from

    def tensor(self, var: Var, tensor: Any) -> Dims:
        """An outside tensor becomes an input: follows it if something of it varies.

        Returns:
            The dimensions whose sizes and whose strides are symbols.
        """
        varies = self.sizes.get(id(tensor))
        if varies is None or tensor.is_conj() or tensor.is_neg():
            return Dims()
        try:
            sizes = [
                self._symbol(n, f"tensor{var}_{i}", var, tensor, torch.Tensor.size, i)
                if varies.sizes >> i & 1
                else n
                for i, n in enumerate(tensor.shape)
            ]
            strides, free = self._strides(var, tensor, sizes, varies.strides, tensor)
            self.note(var, self._made(sizes, strides, tensor))
        except Exception:  # noqa: BLE001 - a kind of tensor that torch has no fake ones of
            self.fix_all()
            return Dims()
        return Dims(varies.sizes, free)

    def _strides(
        self, var: Var, tensor: Any, sizes: list[Any], varies: int, outside: Any
    ) -> tuple[list[Any] | None, int]:
        """The strides of a tensor of these sizes, and which of them are symbols.

        No strides stands for those of a contiguous tensor.  `outside` is as of `Source`.
        """
        strides = list(tensor.stride())
        inner = _tensor.TensorMeta(tensor).inner
        free = 0
        # From the innermost dimension on, since one may follow from the other.
        for i in sorted(range(len(inner)), key=lambda i: _depth(inner, i)):
            if inner[i] >= 0:
                strides[i] = sizes[inner[i]] * strides[inner[i]]
            elif varies >> i & 1 and strides[i] > 1:
                free |= 1 << i
                name = f"tensor{var}_stride{i}"
                strides[i] = self._symbol(strides[i], name, var, outside, torch.Tensor.stride, i)
        return (None if tensor.is_contiguous() and not free else strides), free

    def number(self, var: Var, value: Any) -> None:
        """A number from outside is an input: follows it if it is an integer."""
        if type(value) is int and abs(value) < _LARGEST:
            self.numbers[var] = self._symbol(value, f"number{var}", var, value)
            self.outside[var] = value

    @property
    def data(self) -> bool:
        """Whether sizes and integers that follow from data are followed."""
        return self._data and not self.fixed

    def follow_data(self) -> None:
        """From here on sizes and integers that follow from data are followed."""
        self._data = True

    def sized_by_data(self, made: list[tuple[Var, Any]]) -> list[Dims]:
        """Follows tensors whose sizes follow from data.

        Args:
            made: variables and tensors.

        Returns:
            For each the dimensions whose sizes and whose strides are symbols.

        Raises:
            CannotFollowError: torch has no fake tensors like these.
        """
        followed = []
        for var, tensor in made:
            sizes = [
                self._symbol(n, f"data{var}_{i}", var, None, torch.Tensor.size, i) if n > 1 else n
                for i, n in enumerate(tensor.shape)
            ]
            # Parts of a tensor of other sizes have other strides, which do not follow from theirs.
            strides, free = self._strides(var, tensor, sizes, (1 << tensor.dim()) - 1, None)
            self.note(var, self._made(sizes, strides, tensor))
            open_sizes = sum(1 << i for i, n in enumerate(tensor.shape) if n > 1)
            followed.append(Dims(open_sizes, free))
        return followed

    def number_of_data(self, var: Var, value: int) -> bool:
        """Follows an integer that follows from data.  Returns whether it does."""
        if not self.data or abs(value) >= _LARGEST:
            return False
        self.numbers[var] = self._symbol(value, f"data{var}", var, None)
        return True

    def checked(self, func: Callable[..., Any], given: int, made: list[Var]) -> Checked:
        """What does the same as a host step's function, and checks what is known of its results.

        Args:
            func: the function.
            given: how many arguments it is given by position.
            made: the variables that it gives, which are followed.
        """
        check = Checked(func, given, made)
        check.conditions.over([s for s in self.sources if s.outside is None], _variable)
        self.checks.append(check.conditions)
        return check

    def complete(
        self, check: Checked, there: Container[Var], changed: Container[Var] = ()
    ) -> list[Var]:
        """Tells a check of what is known where it is made.

        Args:
            check: what `checked` gave.
            there: the variables from outside that are known there.
            changed: tensors that have other sizes by then than those that symbols stand for.

        Returns:
            The variables that it is to be called with beside the arguments of the function.
        """
        before = set(check.conditions.symbols)
        known = [
            s
            for s in self.sources
            if (s.symbol in before or (s.outside is not None and s.var in there))
            and (s.var in check.made or s.var not in changed)
        ]
        keys: list[Var] = check.conditions.over(known, _variable)
        return check.take([k for k in keys if k not in check.made], keys)

    def _symbol(
        self, value: int, name: str, var: Var, outside: Any, read: Read | None = None, dim: int = 0
    ) -> Any:
        """A symbol, which stands for a number or for what is read of a tensor."""
        env = self.env  # which imports what comes next
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        row = self._alike.get(id(outside)) if read is not None else None
        key = row, read, dim, value
        if row is not None and key in self._in_row:
            symbol, number = self._in_row[key]
            own = type(symbol)(name, integer=True)
            self._equal[own] = symbol
            self.sources.append(Source(own, var, outside, read, dim))
            return number
        source = ConstantSource(name)
        if read is None:
            symbol = env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        elif read is torch.Tensor.size:
            symbol = env.create_size(value, source, DimDynamic.DYNAMIC)
        else:
            symbol = env.create_symbol(value, source, DimDynamic.DYNAMIC)
        self.sources.append(Source(symbol, var, outside, read, dim))
        number = env.create_symintnode(symbol, hint=value, source=source)
        if row is not None:
            self._in_row[key] = symbol, number
        return number

    def _made(self, sizes: Any, strides: Any, tensor: Any) -> Any:
        """A fake tensor like a tensor, but of these sizes.

        It is made anew: torch would note in the tensor which fake one stands for it, and hear of
        the tensor's end, in the midst of the program.
        """
        if tensor.is_conj() or tensor.is_neg() or tensor.layout is not torch.strided:
            raise CannotFollowError("a tensor has a form that is not followed")
        like: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
        # No transform of torch.func that is active is to wrap it.
        with apart(), torch._C._DisableFuncTorch(), self.mode, inference_of(tensor):
            if strides is None:
                fake = torch.empty(sizes, **like)
            else:
                fake = torch.empty_strided(sizes, strides, **like)
            return requiring(fake, tensor.requires_grad)

    def still(self, var: Var, tensor: Any) -> None:
        """The sizes of a variable are what they are in every call.

        Nothing stands for a tensor of a transform that is active: what is done to it is followed
        from where the transform got it, or not at all.  Nor for a sparse one: what is done to that
        has sizes of data.
        """
        if wrapped(tensor) or tensor.layout is not torch.strided:
            self.fakes.pop(var, None)
        elif type(tensor) is torch.Tensor and not tensor.is_nested:
            self.fakes[var] = self._made(tensor.shape, tensor.stride(), tensor)

    def stands_for(self, var: Var, of: Var, tensor: Any) -> None:
        """A pass has made a variable that is as large as another one, a tensor from outside or not.

        Args:
            var: the new variable.
            of: the other one.
            tensor: what that is if it is from outside; else None.
        """
        if of in self.fakes:
            self.note(var, self.fakes[of])
        elif tensor is not None and not self.fixed:
            self.still(var, tensor)

    def gradient(self, of: Var, var: Var, tensor: Any) -> None:
        """A tensor is the gradient of another one, and as large.

        Raises:
            CannotFollowError: it lies in memory in a way that does not follow.
        """
        like = self.fakes.get(of)
        if of not in self.symbolic or like is None:
            self.still(var, tensor)
            return
        if tensor.is_contiguous():
            strides = None
        elif tuple(map(hint, like.stride())) == tensor.stride():
            strides = like.stride()
        elif self._is_outermost(like.shape, tensor.stride()):
            strides = tensor.stride()  # a part of another gradient
        else:
            raise CannotFollowError("a gradient lies neither in order nor as its tensor does")
        self.note(var, self._made(like.shape, strides, tensor))

    @staticmethod
    def _is_outermost(sizes: Any, strides: tuple[int, ...]) -> bool:
        """Whether one size is a symbol, and no stride can follow from it."""
        found = [i for i, n in enumerate(sizes) if isinstance(n, torch.SymInt)]
        return (
            len(found) == 1
            and strides[found[0]] == max(strides)
            and strides.count(max(strides)) == 1
        )

    def open_dimensions(self, var: Var) -> int:
        """The dimensions of a variable whose sizes are symbols, as a bit mask."""
        fake = self.fakes.get(var)
        sizes = () if self.fixed or fake is None else fake.shape
        return sum(1 << i for i, n in enumerate(sizes) if isinstance(n, torch.SymInt))

    def note(self, var: Var, fake: Any) -> None:
        """`fake` stands for a variable."""
        self.fakes[var] = fake
        if sizes_of(fake):
            self.symbolic.add(var)

    def requires_grad(self, var: Var, required: bool) -> None:
        """What stands for a variable requires grad as the tensor does by now."""
        fake = self.fakes.get(var)
        if fake is None or fake.requires_grad == required:
            return
        if wrapped(fake):
            self.fix([var])
            del self.fakes[var]
            return
        with torch._C._DisableFuncTorch():
            self.fakes[var] = requiring(fake.detach(), required)

    def concerns(self, found: Iterable[Var]) -> bool:
        """Whether the sizes or the value of one of these variables hold symbols."""
        return not self.fixed and any(v in self.symbolic or v in self.numbers for v in found)

    # ------------------------------------------------------------- computing with symbols

    def operation(
        self, func: Any, args: Any, kwargs: Any, static: Callable[[Var], Any], reads: bool = False
    ) -> Any:
        """The result of an operation for fake tensors.

        Args:
            func: the operation.
            args: its arguments, with variables for tensors and for numbers that are followed.
            kwargs: likewise.
            static: gives the tensor or number that a variable is.
            reads: it only says of a tensor how large it is, or what else is known of it.

        Raises:
            SizedByDataError: data decides what it gives.
            CannotFollowError: it cannot be done.
        """
        from torch._subclasses import fake_tensor

        if getattr(func, "__name__", "") in _ADDRESSES:
            raise CannotFollowError("an address is asked for")
        if goes_by_data(func):
            raise CannotFollowError("its fake kernel asks for data")
        try:
            return self._operated(func, args, kwargs, static, reads)
        except (
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.DataDependentOutputException,
        ) as e:
            # That is said before it is asked whether the sizes fit each other.
            try:
                with self._any_output():
                    self._operated(func, args, kwargs, static, reads)
            except Exception as other:
                raise CannotFollowError(f"{type(other).__name__}: {other}") from other
            raise SizedByDataError(f"{type(e).__name__}: {e}") from e
        except Exception as e:
            raise CannotFollowError(f"{type(e).__name__}: {e}") from e

    def _operated(
        self, func: Any, args: Any, kwargs: Any, static: Callable[[Var], Any], reads: bool
    ) -> Any:
        from torch._dispatch.python import enable_python_dispatcher

        self.given = {}
        # Whatever is drawn, and from which generator, the sizes are the same.
        kwargs = {k: v for k, v in kwargs.items() if not is_generator(v, static)}
        key = self._repeated.key(func, args, kwargs, functools.partial(self._stands_for, static))
        found = self._repeated.find(key)
        if found is not None:
            return found
        transformed = in_transform()
        keys = keys_kept(transformed)
        with keys, apart(), unlogged(), uncached(), enable_python_dispatcher(), self.mode:
            if key is None:
                for var in variables((args, kwargs)) & self.fakes.keys():
                    with any_size(self.env):
                        self.fakes[var] = self._repeated.own(self.fakes[var])
            # Rules of `vmap` make tensors of the numbers that operations compute with, and of
            # symbols they cannot; whatever those are, the result has one form.
            plain_numbers = transformed and operation_name(func) in _COMPUTES
            given = tuple(self._substitute(v, static, plain_numbers) for v in (args, kwargs))
            if getattr(func, "__name__", "") in _STORES:
                masks_fit(*given[0][:2])
            if reads:
                result = func(*given[0], **given[1])
            else:
                none = functools.partial(self.none_is_one, self.given)
                result = operated(self.env, func, given[0], given[1], none)
                for fake in tensors(result):  # what is left of a size of 1 may be nothing
                    for n in fake.shape:
                        if isinstance(n, torch.SymInt):
                            self.env.keep_positive(n)
        self._repeated.keep(key, result, list(self.given.values()))
        return result

    def any_size(self) -> contextlib.AbstractContextManager[None]:
        """Whether a size is 1 makes no difference to a compiler (magpy/shapes/environment.py)."""
        return any_size(self.env)

    def _stands_for(self, static: Callable[[Var], Any], var: Var) -> Any:
        """What stands for a variable, but for the tensor itself where none does yet."""
        if var in self.numbers:
            return self.numbers[var]
        fake = self.fakes.get(var)
        return static(var) if fake is None else fake

    @contextlib.contextmanager
    def _any_output(self) -> Iterator[None]:
        """Lets operations give sizes and numbers of data, which nothing is kept of."""
        settings = self.env.settings
        self.env.settings = dataclasses.replace(
            settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
        )
        try:
            with self.env.ignore_fresh_unbacked_symbols():
                yield
        finally:
            self.env.settings = settings

    def _substitute(self, v: Any, static: Callable[[Var], Any], plain_numbers: bool) -> Any:
        def value(x: Any) -> Any:
            if isinstance(x, Ref):
                if x.var in self.numbers:
                    number = self.numbers[x.var]
                    return hint(number) if plain_numbers else number
                fake = self.fakes.get(x.var)
                if fake is None:
                    fake = self._static(static(x.var))
                self.given[x.var] = fake
                return fake
            if isinstance(x, OutsideRef) or type(x).__module__ == "numpy":
                raise CannotFollowError(f"{an(type(x).__name__)} is given to the operation")
            return x

        return rebuilt(v, value)

    def _static(self, tensor: Any) -> Any:
        if type(tensor) in (int, float):
            return tensor
        if not isinstance(tensor, torch.Tensor) or wrapped(tensor):
            raise CannotFollowError("a value is given that is not followed")
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_nested:
            raise CannotFollowError(f"{an(type(tensor).__name__)} is not followed")
        return self._made(tensor.shape, tensor.stride(), tensor)

    def compute(self, func: Any, args: tuple[Any, ...]) -> Any:
        """What a function of numbers gives: a symbol, a plain value that follows, or None.

        None says that the function cannot be followed; nothing is known of its result then.
        """
        if not has_form(func) or not all(self._is_number(a) for a in args):
            return None
        with unlogged():
            return computed(func, [self._value(a) for a in args])

    def _value(self, v: Any) -> Any:
        if isinstance(v, (tuple, list)):
            return [self._value(x) for x in v]
        return self.numbers[v.var] if isinstance(v, Ref) else v

    def _is_number(self, v: Any) -> bool:
        if isinstance(v, (tuple, list)):
            return all(type(x) in (int, Ref) and self._is_number(x) for x in v)
        # For torch no number is equal to True or False.
        return v.var in self.numbers if isinstance(v, Ref) else type(v) in (int, float)

    def none_is_one(self, found: Iterable[Var]) -> None:
        """No size of these tensors is 1."""
        for var in self.symbolic.intersection(found):
            for n in sizes_of(self.fakes[var]):
                plain(n > 1)

    def read(self, number: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """How an integer follows from what there was before any transform.

        Returns:
            A function, and its arguments.

        Raises:
            CannotFollowError: a tensor that it follows from has other sizes by now.
        """
        found = number.node.expr.free_symbols
        sources = [s for s in self.sources if s.symbol in found]
        for s in sources:
            fake = self.fakes.get(s.var)
            if s.read is not None and (fake is None or _expr(s.read(fake, s.dim)) != s.symbol):
                raise CannotFollowError("a tensor has other sizes by now")
        if len(sources) != len(found):
            raise CannotFollowError("a number follows from something else")
        if len(sources) == 1 and number.node.expr == sources[0].symbol:
            s = sources[0]
            return (identity, (Ref(s.var),)) if s.read is None else (s.read, (Ref(s.var), s.dim))
        computed = Computed(number.node.expr, sources)
        return computed, tuple(map(Ref, computed.variables))

    def fix(self, found: Iterable[Var]) -> None:
        """From here on the run relies on what the sizes or values of these variables are."""
        try:
            with torch._C.DisableTorchFunction():
                for var in found:
                    if var in self.numbers:
                        plain(self.numbers.pop(var))
                    if var in self.symbolic:
                        self.symbolic.remove(var)
                        for number in sizes_of(self.fakes[var]):
                            plain(number)
        except Exception:  # noqa: BLE001 - whatever torch finds out about symbols
            self.fix_all()

    def fix_all(self) -> None:
        """From here on the run relies on every symbol being what it is: nothing is followed."""
        self.fixed = True
        with torch._C.DisableTorchFunction():
            for number in self.numbers.values():
                plain(number)
            for var in self.symbolic:
                for number in sizes_of(self.fakes[var]):
                    plain(number)
        self.numbers.clear()
        self.symbolic.clear()

    # ------------------------------------------------------------- what is left

    def free(self) -> bool:
        """Whether a symbol is left that may have several values."""
        if self.fixed:
            return False
        found = {s.symbol for s in self.sources} - self._equal.keys()
        return any(not self.env.simplify(s).is_number for s in found)

    def varying(self, data: bool) -> set[Var]:
        """The tensors whose sizes vary and the numbers that do.

        Args:
            data: only those that follow from data.
        """
        if self.fixed:
            return set()
        found = {v: sizes_of(self.fakes[v]) for v in self.symbolic}
        found.update((v, [n]) for v, n in self.numbers.items())
        if not data:
            return set(found)
        of_data = {s.symbol for s in self.sources if s.outside is None}
        return {
            v for v, held in found.items() if any(of_data & n.node.expr.free_symbols for n in held)
        }

    def example(self, var: Var, inputs: dict[Var, Any]) -> Any:
        """What stands for an input of a graph while it is compiled.

        Args:
            var: the input.
            inputs: the tensors from outside.

        Raises:
            CannotFollowError: nothing does.
        """
        if var in self.numbers:
            return self.numbers[var]
        if var not in self.fakes and var in inputs:
            return self._static(inputs[var])
        fake = self.fakes.get(var)
        if fake is None:
            raise CannotFollowError("a graph takes a tensor that was not followed")
        fake = self._renamed(fake)
        return fake if fake.is_leaf else requiring(fake.detach(), fake.requires_grad)

    def _renamed(self, fake: Any) -> Any:
        """A fake tensor whose sizes are told by the symbols that others were found equal to.

        TorchInductor looks a symbol up by the name that a size was given.
        """
        if not any(isinstance(n, torch.SymInt) and n.node._expr != n.node.expr for n in fake.shape):
            return fake

        def renamed(n: Any) -> Any:
            if not isinstance(n, torch.SymInt):
                return n
            return self.env.create_symintnode(n.node.expr, hint=hint(n))

        return self._made([*map(renamed, fake.shape)], [*map(renamed, fake.stride())], fake)

    def dense(self, var: Var, tensor: Any) -> bool:
        """Whether an input fills the memory that it spans; a condition from here on if it does.

        Args:
            var: the input.
            tensor: what it is in this run.
        """
        like = self.fakes[var] if not self.fixed and var in self.symbolic else tensor
        with torch._C.DisableTorchFunction():
            if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
                return True
            dims = [i for i, n in enumerate(tensor.shape) if n > 1]
            expected: Any = 1
            for i in sorted(dims, key=tensor.stride):
                if tensor.stride(i) != hint(expected) or like.stride(i) != expected:
                    return False
                expected = like.size(i) * like.stride(i)
        return True

    def fill(self, conditions: Conditions | None) -> None:
        """Tells an entry's guard and checks what is known of the symbols.

        Args:
            conditions: those of the guard; None if no symbol comes from outside.

        Raises:
            CannotFollowError: something is known of a symbol that is none of these.
        """
        import sympy  # type: ignore[import-untyped]
        from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
        from torch.utils._sympy.printers import PythonPrinter

        names = {s.symbol: f"s{i}" for i, s in enumerate(self.sources)}
        rename = {s: sympy.Symbol(name, integer=True) for s, name in names.items()}
        printer = PythonPrinter()
        known: list[tuple[set[Any], str, Place | None]] = []
        for s in self.sources:
            name, most = names[s.symbol], _LARGEST
            if (equal := self._equal.get(s.symbol)) is not None:
                known.append(({s.symbol, equal}, f"{name} == {names[equal]}", None))
                continue
            least = 1 if s.read is torch.Tensor.size else LEAST
            own = f"-{most} < {name} < {most}" if s.read is None else f"{name} >= {least}"
            known.append(({s.symbol}, own, None))
        for guard, place in zip(self.env.guards, self.env.guards.places, strict=True):
            found = set(guard.expr.free_symbols)
            if is_not_one(guard.expr, self.env.sizes):
                known.append((found, f"{names[next(iter(found))]} >= {LEAST}", place))
                continue
            known.append((found, f"({printer.doprint(guard.expr.xreplace(rename))})", place))
        for target in (conditions, *self.checks):
            if target is None:
                continue
            given = set(target.symbols)
            # The first that knows all of them: a graph relies on what was checked before it.
            parts: dict[str, Place | None] = {}
            for found, text, place in known:
                if found <= given:
                    parts.setdefault(text, place)
            known = [one for one in known if not one[0] <= given]
            names_here = [names[s] for s in target.symbols]
            target.fill(names_here, list(parts.items()), dict(SYMPY_INTERP))
        if known:
            raise CannotFollowError(f"a condition that nothing checks: {known[0][1]}")


def _fixed(condition: Any) -> Any:
    """The symbol that a condition admits one value of; None if it is another condition."""
    args: tuple[Any, ...] = condition.args
    if condition.is_Relational and condition.rel_op == "==" and args[1].is_number:
        return args[0] if args[0].is_Symbol else None
    return None


def _variable(source: Source) -> Var:
    return source.var


def _expr(v: Any) -> Any:
    return v.node.expr if isinstance(v, torch.SymInt) else v


def _depth(inner: tuple[int, ...], dim: int) -> int:
    """How many dimensions one follows from."""
    depth = 0
    while inner[dim] >= 0:
        dim, depth = inner[dim], depth + 1
    return depth


# Operations that compute with numbers, whose results have one form whatever these are.
_COMPUTES = ARITHMETIC - {"__setitem__"}
# What stores at an index, of which fake tensors do not ask that its masks fit.
_STORES = frozenset(["__setitem__", "index_put", "index_put_"])


__all__ = ["Symbols"]
