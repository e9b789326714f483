"""The mutation check: change between calls what a program could change, and compare again.

Owns: the list of changes, applying and undoing each in both worlds, the verdict `stale`.  Does not
own: the first verdict on a case (`protocol`).  Called by `protocol.run_case` after a case has
passed.

A compiled module that answers with what was true before the change is *stale*, the worst result
there is.  What makes eager fail is skipped.  The pair of worlds is built anew every few changes, so
that a compiler's limit on captures does not hide later ones behind plain eager calls; the first
is the pair that the case has passed with.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from parity_tests import compare, protocol
from parity_tests.corpus import Case
from parity_tests.modes import Mode
from parity_tests.protocol import CRASH, STALE, LeftOut, Record, World, one_line

#: Changes compared on one pair of worlds before it is built anew.
CHANGES_PER_PAIR = 10

_TORCH_OWN = frozenset(vars(torch.nn.Module()))

Undo = Callable[[], None]


@dataclass(frozen=True)
class Mutation:
    """One change: its kind, what it changes in words, how to make it (returns how to undo it).

    Attributes:
        part: the type of the submodule that it changes; empty for arguments.
    """

    kind: str
    label: str
    apply: Callable[[World], Undo]
    part: str = ""


class CannotMutate(Exception):
    """The change does not apply to this value."""


@dataclass
class Check:
    """The mutation check with its budget.

    Attributes:
        seconds: wall time for one case; what is left of its mutations then is not tried.
        count: at most so many mutations for one case (0: all), a fixed sample of them.
        on_change: called before each change with its number and the record so far, so that it is
            known what was tried when a process dies.
    """

    seconds: float = 30.0
    count: int = 0
    on_change: Callable[[int, Record], None] = field(default=lambda _number, _record: None)

    def __call__(
        self,
        case: Case,
        mode: Mode,
        backend: str,
        device: str,
        record: Record,
        checked: tuple[World, World],
    ) -> None:
        deadline = time.perf_counter() + self.seconds
        pair: tuple[World, World] | None = checked
        used = 0
        for number, mutation in enumerate(
            itertools.islice(_chosen(case, checked[0]), self.count or None)
        ):
            if time.perf_counter() > deadline:
                break
            self.on_change(number, record)
            if pair is None or used >= CHANGES_PER_PAIR:
                pair, used = fresh_pair(case, mode, backend, device), 0
            try:
                outcome = try_mutation(mutation, *pair, mode, backend)
            except LeftOut:
                outcome, pair = None, None
            if outcome is None:
                record.skipped_mutations += 1
                continue
            used += 1
            record.mutations += 1
            status, text = outcome
            if status and not eager_agrees(mutation, case, device):
                record.skipped_mutations += 1
                pair = None
                continue
            if status:
                record.status = status
                record.reason = f"after {mutation.label}: {text}"
                return


def _chosen(case: Case, world: World) -> Iterator[Mutation]:
    return draw(mutations(world), f"{case.file}:{case.index}")


def in_eager(case: Case, device: str, number: int) -> tuple[str, bool]:
    """Make a case's change `number` in two worlds that eager runs.

    Where a process has died at this change, it dies here, too, if that is eager's doing.

    Returns: what the change is, and whether eager takes it.
    """
    mode = Mode()
    pair = fresh_pair(case, mode, "eager", device)
    mutation = next(itertools.islice(_chosen(case, pair[0]), number, None))
    outcome = None
    with contextlib.suppress(LeftOut):
        outcome = try_mutation(mutation, *pair, mode, "eager")
    return mutation.label, outcome is not None and outcome[0] != CRASH


def fresh_pair(case: Case, mode: Mode, backend: str, device: str) -> tuple[World, World]:
    """A pair of worlds, the other one compiled, both called as often as the check before did."""
    eager, other = protocol.warm_pair(case, device)
    other.callable = mode.compile(other.module, backend)
    for seed in (0, 0):
        eager.call(seed)
        other.call(seed)
    return eager, other


def try_mutation(
    mutation: Mutation, eager: World, other: World, mode: Mode, backend: str
) -> tuple[str, str] | None:
    """Make a change in both worlds, call both once, compare and undo.

    Returns: None when the change does not apply or makes eager fail, else the status (empty when
        all is well) and the difference.

    Raises:
        LeftOut: when eager failed half-way and the worlds are no longer equal; the pair must be
            built anew.
    """
    try:
        undo_eager = mutation.apply(eager)
    except Exception:  # noqa: BLE001 - a change that this module does not take
        return None
    try:
        expected = protocol.call_eager(eager, 0)
    except LeftOut:
        undo_eager()
        if compare.difference(eager.module, other.module) is not None:
            raise
        return None
    try:
        undo_other = mutation.apply(other)
        found = protocol.call_other(expected, eager, other, 0, mode, backend)
        undo_eager()
        undo_other()
    except LeftOut:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is a verdict on it
        return (CRASH, one_line(error))
    return (STALE, found) if found else ("", "")


def eager_agrees(mutation: Mutation, case: Case, device: str) -> bool:
    """Whether eager gives one answer in separate worlds after the change.

    Some changes make an operation read memory that holds anything (an LSTM told that it has other
    weights than it has); what eager does then is no measure.
    """
    for _ in range(3):
        try:
            outcome = try_mutation(mutation, *protocol.warm_pair(case, device), Mode(), "eager")
        except LeftOut:
            return False
        if outcome != ("", ""):
            return False
    return True


def draw(changes: Iterable[Mutation], seed: str) -> Iterator[Mutation]:
    """The same changes in a random order that is fixed by `seed`, one of each kind in turn.

    Within a kind, submodules of each type come in turn, so that any beginning of the order is a
    sample stratified over kinds and types.
    """
    chance = random.Random(seed)
    strata: dict[str, dict[str, list[Mutation]]] = {}
    for change in changes:
        strata.setdefault(change.kind, {}).setdefault(change.part, []).append(change)
    kinds = []
    for parts in strata.values():
        for group in parts.values():
            chance.shuffle(group)
        groups = list(parts.values())
        chance.shuffle(groups)
        kinds.append(list(_in_turn(groups)))
    chance.shuffle(kinds)
    yield from _in_turn(kinds)


def _in_turn(groups: list[list[Mutation]]) -> Iterator[Mutation]:
    for row in itertools.zip_longest(*groups):
        yield from (change for change in row if change is not None)


def mutations(world: World) -> Iterator[Mutation]:
    """Every change that a world's module and arguments offer."""
    module = world.module
    if isinstance(module, torch.nn.Module):
        yield Mutation("mode", "module.train()", _set_training(True))
        seen_types: set[type] = set()
        for path, part in module.named_modules():
            name = type(part).__name__
            for change in _part_changes(path, part, type(part) not in seen_types):
                yield replace(change, part=name)
            seen_types.add(type(part))
    yield from _input_changes(world)


def _part_changes(path: str, part: torch.nn.Module, first_of_type: bool) -> Iterator[Mutation]:
    where = f"module.{path}" if path else "module"
    yield from _attribute_changes(path, where, part)
    yield from _parameter_changes(path, where, part)
    yield Mutation("hook", f"a forward hook on {where}", _add_hook(path))
    if path:
        label = f"another {type(part).__name__} as {where}"
        yield Mutation("submodule", label, _replace_submodule(path))
    if first_of_type:
        yield Mutation("mode of one", f"{where}.train()", _train_one(path))


def _attribute_changes(path: str, where: str, part: torch.nn.Module) -> Iterator[Mutation]:
    for name, value in vars(part).items():
        if name in _TORCH_OWN:
            continue
        kind = type(value).__name__
        for number in range(len(_other_values(value))):
            yield Mutation(
                f"{kind} attribute {number}",
                f"{where}.{name} changed",
                _set_attribute(path, name, number),
            )
        if isinstance(value, (list, dict)):
            for number, what in enumerate(("shortened", "extended", "an item changed")):
                label = f"{where}.{name} {what}"
                yield Mutation(f"{kind} {what}", label, _change_container(path, name, number))


def _other_values(value: Any) -> list[Any]:
    """What a plain attribute could be changed to."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 1.5 + 0.125]
    if isinstance(value, str):
        return [value + "_", ""]
    if value is None:
        return [1, False]
    return []


def _parameter_changes(path: str, where: str, part: torch.nn.Module) -> Iterator[Mutation]:
    for store in ("_parameters", "_buffers"):
        for name, value in getattr(part, store).items():
            if value is None:
                continue
            label = f"{where}.{name}"
            kind = store[1:-1]
            yield Mutation(
                f"{kind} values", f"{label} changed in place", _tensor_in_place(path, store, name)
            )
            yield Mutation(
                f"{kind} replaced", f"{label} replaced", _tensor_replaced(path, store, name, None)
            )
            if value.is_floating_point():
                yield Mutation(
                    f"{kind} dtype",
                    f"{label} as float64",
                    _tensor_replaced(path, store, name, torch.float64),
                )
            if store == "_parameters":
                yield Mutation(
                    "requires_grad",
                    f"{label}.requires_grad flipped",
                    _flip_requires_grad(path, name),
                )
    if not path:
        yield Mutation("module dtype", "module.double()", _all_double)


def _part(world: World, path: str) -> torch.nn.Module:
    part: torch.nn.Module = world.module.get_submodule(path)
    return part


def _set_training(flag: bool) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        states = [(part, part.training) for part in world.module.modules()]
        world.module.train(flag)

        def undo() -> None:
            for part, training in states:
                part.training = training

        return undo

    return apply


def _train_one(path: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        part = _part(world, path)
        before = part.training
        part.training = not before
        return lambda: setattr(part, "training", before)

    return apply


def _set_attribute(path: str, name: str, number: int) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        part = _part(world, path)
        before = vars(part)[name]
        setattr(part, name, _other_values(before)[number])
        return lambda: setattr(part, name, before)

    return apply


def _change_container(path: str, name: str, number: int) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        value = vars(_part(world, path))[name]
        before = copy.copy(value)
        if not value:
            raise CannotMutate
        change = _LIST_CHANGES if isinstance(value, list) else _DICT_CHANGES
        change[number](value)

        def undo() -> None:
            value.clear()
            value.extend(before) if isinstance(value, list) else value.update(before)

        return undo

    return apply


def _change_item(value: Any, key: Any) -> None:
    value[key] = _changed_item(value[key])


def _add_key(value: dict[Any, Any]) -> None:
    value["another"] = next(iter(value.values()))


#: Shortening, extending and changing an item, in the order of `_attribute_changes`.
_LIST_CHANGES: tuple[Callable[[list[Any]], object], ...] = (
    lambda value: value.pop(),
    lambda value: value.append(value[-1]),
    lambda value: _change_item(value, 0),
)
_DICT_CHANGES: tuple[Callable[[dict[Any, Any]], object], ...] = (
    lambda value: value.popitem(),
    _add_key,
    lambda value: _change_item(value, next(iter(value))),
)


def _changed_item(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item * 2
    others = _other_values(item)
    if not others:
        raise CannotMutate
    return others[0]


def _tensor_in_place(path: str, store: str, name: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        tensor = getattr(_part(world, path), store)[name]
        before = tensor.detach().clone()
        with torch.no_grad():
            tensor.copy_(_changed_tensor(tensor))

        def undo() -> None:
            with torch.no_grad():
                tensor.copy_(before)

        return undo

    return apply


def _changed_tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.bool:
        return ~tensor
    return (
        tensor.detach() * 2 + 1
        if not tensor.is_floating_point()
        else tensor.detach() * 1.25 + 0.0625
    )


def _tensor_replaced(
    path: str, store: str, name: str, dtype: torch.dtype | None
) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        tensors = getattr(_part(world, path), store)
        before = tensors[name]
        value = _changed_tensor(before) if dtype is None else before.detach().to(dtype)
        tensors[name] = (
            torch.nn.Parameter(value, before.requires_grad) if store == "_parameters" else value
        )
        return lambda: tensors.__setitem__(name, before)

    return apply


def _flip_requires_grad(path: str, name: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        tensor = _part(world, path)._parameters[name]
        if tensor is None:
            raise CannotMutate
        before = tensor.requires_grad
        tensor.requires_grad_(not before)

        def undo() -> None:
            tensor.requires_grad_(before)

        return undo

    return apply


def _all_double(world: World) -> Undo:
    states = {key: value.clone() for key, value in world.module.state_dict().items()}
    dtypes = [
        (tensor, tensor.dtype) for tensor in (*world.module.parameters(), *world.module.buffers())
    ]
    args, kwargs = world.args, world.kwargs
    world.module.double()
    world.args, world.kwargs = _map_tensors(args, _to_double), _map_tensors(kwargs, _to_double)

    def undo() -> None:
        for tensor, dtype in dtypes:
            tensor.data = tensor.data.to(dtype)
        world.module.float()
        world.module.load_state_dict(states)
        world.args, world.kwargs = args, kwargs

    return undo


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _add_hook(path: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        return _part(world, path).register_forward_hook(_doubling_hook).remove

    return apply


def _doubling_hook(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
    """Double what a module returns, where that is a tensor or a tuple of them."""
    if isinstance(output, torch.Tensor):
        return output * 2
    if type(output) is tuple:
        return tuple(item * 2 if isinstance(item, torch.Tensor) else item for item in output)
    return output


def _replace_submodule(path: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        parent_path, _, name = path.rpartition(".")
        parent = _part(world, parent_path)
        before = parent._modules[name]
        other = copy.deepcopy(before)
        if other is None:
            raise CannotMutate
        with torch.no_grad():
            for tensor in other.parameters():
                tensor.mul_(1.5)
        parent._modules[name] = other
        return lambda: parent._modules.__setitem__(name, before)

    return apply


def _input_changes(world: World) -> Iterator[Mutation]:
    """Changes to the arguments: all tensors at once, each alone, and plain numbers."""
    yield Mutation(
        "batch", "one more row in every tensor argument", _change_inputs(None, _one_more_row)
    )
    count = len(_tensors_of(world.args)) + len(_tensors_of(world.kwargs))
    for position in range(count):
        where = f"tensor argument {position}"
        yield Mutation(
            "input batch", f"one more row in {where}", _change_inputs(position, _one_more_row)
        )
        yield Mutation(
            "input size",
            f"{where} with a longer last dimension",
            _change_inputs(position, _longer_last),
        )
        yield Mutation(
            "input dtype", f"{where} as another dtype", _change_inputs(position, _other_dtype)
        )
        yield Mutation(
            "input stride", f"{where} with other strides", _change_inputs(position, _other_stride)
        )
        yield Mutation("input grad", f"{where} requires grad", _change_inputs(position, _with_grad))
        yield Mutation(
            "input values", f"{where} with other values", _change_inputs(position, _negated)
        )
    for index, value in enumerate(world.args):
        if isinstance(value, (bool, int, float, str)):
            yield Mutation(
                "input number", f"argument {index} changed", _change_plain("args", index)
            )
    for key, value in world.kwargs.items():
        if isinstance(value, (bool, int, float, str)):
            yield Mutation("input number", f"argument {key} changed", _change_plain("kwargs", key))


def _change_plain(store: str, key: Any) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        values = getattr(world, store)
        before = values[key]
        values[key] = _other_values(before)[0]
        return lambda: values.__setitem__(key, before)

    return apply


def _change_inputs(
    position: int | None, change: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[World], Undo]:
    """Replace the tensor at `position` among the arguments (None: each) by `change` of it."""

    def apply(world: World) -> Undo:
        args, kwargs = world.args, world.kwargs
        counter = itertools.count()

        def one(tensor: torch.Tensor) -> torch.Tensor:
            return change(tensor) if position is None or next(counter) == position else tensor

        world.args, world.kwargs = _map_tensors(args, one), _map_tensors(kwargs, one)

        def undo() -> None:
            world.args, world.kwargs = args, kwargs

        return undo

    return apply


def _tensors_of(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _map_tensors(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def _map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_map_tensors(item, change) for item in value)
    if type(value) is dict:
        return {key: _map_tensors(item, change) for key, item in value.items()}
    return value


def _one_more_row(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.shape[0] == 0:
        raise CannotMutate
    return torch.cat([tensor, tensor[:1]])


def _longer_last(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() < 2 or tensor.shape[-1] == 0:
        raise CannotMutate
    return torch.cat([tensor, tensor[..., :1]], -1)


def _other_dtype(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if not tensor.is_floating_point() else tensor.double()


def _other_stride(tensor: torch.Tensor) -> torch.Tensor:
    """The same values over a transposed storage; `copy_inputs` keeps the strides."""
    if tensor.dim() < 2 or tensor.numel() < 2:
        raise CannotMutate
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _with_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(not tensor.requires_grad)


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.bool:
        return ~tensor
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise CannotMutate
    return -tensor
