"""Results of compiled graphs that share memory where eager's do not.

Owns finding them, in the first call of a compiled graph, and copying them from then on.  Does not
own what shares memory in eager (`Segment.memory`), nor the views that are made outside of graphs
(magpy/replay/segments.py).  Called by magpy/runtime/entry.py.

A compiler leaves out what changes no value: `x * ones` becomes `x` itself, and of two equal
expressions one. A program that then changes a result in place would change another tensor, too.
What a compiled graph shares follows from the graph, so that one look is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from magpy import _tensor


def looked_at(
    compiled: Callable[..., Any],
    inputs: Sequence[int],
    outputs: Sequence[int],
    settle: Callable[[Callable[..., Any]], None],
    begin: Callable[[Sequence[Any]], Any],
    check: Callable[[Sequence[Any], Any, Any], Any],
    raised: Callable[[Sequence[Any], Any, Exception], Any],
) -> Callable[..., Any]:
    """What to call at first instead of a compiled graph.

    Args:
        compiled: takes the inputs and gives a sequence of results.
        inputs: a number for the memory of each input, 0 if it is not known.
        outputs: likewise for the results.
        settle: told what to call from then on.
        begin: called with the inputs before that is; gives what `check` needs to take it back.
        check: takes the inputs, what `begin` gave and the results; gives the results to return if
            these cannot be, for they are no sequence of so many, and None if they can.
        raised: takes the inputs, what `begin` gave and what the graph raised, and raises it, or
            gives the results to return.
    """

    def run(*given: Any) -> Any:
        begun = begin(given)
        try:
            results = compiled(*given)
        except Exception as e:  # noqa: BLE001 - whoever is told raises it
            return raised(given, begun, e)
        others = check(given, begun, results)
        if others is not None:
            return others
        shared = _shared(given, inputs, results, outputs)
        if not shared:
            settle(compiled)
            return results

        def copying(*given: Any) -> Any:
            return _copied(compiled(*given), shared)

        settle(copying)
        return _copied(results, shared)

    return run


def _shared(
    given: Sequence[Any], inputs: Sequence[int], results: Sequence[Any], outputs: Sequence[int]
) -> frozenset[int]:
    """The results that have the memory of a tensor with which they share none in eager."""
    holders: dict[int, set[int]] = {}
    for t, memory in zip(given, inputs, strict=True):
        holders.setdefault(storage_of(t), set()).add(memory)
    shared = set()
    for i, (t, memory) in enumerate(zip(results, outputs, strict=True)):
        storage = storage_of(t)
        if storage and memory and not holders.setdefault(storage, {memory}) & {0, memory}:
            shared.add(i)
    return frozenset(shared)


def storage_of(t: Any) -> int:
    """A number for the memory of a tensor; 0 if it has none, or is no tensor."""
    if not isinstance(t, torch.Tensor):
        return 0
    try:
        return int(_tensor.storage_id(t))
    except (RuntimeError, NotImplementedError, TypeError):
        return 0  # a sparse tensor or the like


def _copied(results: Sequence[Any], shared: frozenset[int]) -> Sequence[Any]:
    return [t.clone() if i in shared else t for i, t in enumerate(results)]


__all__ = ["looked_at", "storage_of"]
