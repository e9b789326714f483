"""The comparison of two worlds: what counts as equal and what does not."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from parity_tests.compare import Rules, difference
from parity_tests.standins import StandInUsed, make_stand_in


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024


def test_equal_nested_objects_have_no_difference() -> None:
    def world() -> Any:
        t = torch.arange(4.0)
        return {
            "a": [t, (1, "x", None)],
            "b": Pair(t, np.ones(2)),
            "c": Point(1.5, {1, 2}),
            "nan": float("nan"),
        }

    assert difference(world(), world()) is None


@pytest.mark.parametrize(
    ("expected", "actual", "part"),
    [
        (torch.ones(2), torch.ones(2) + 1e-7, "values"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2, 3), torch.ones(3, 2), "shape"),
        (torch.ones(2, 2), torch.ones(2, 2).t(), "stride"),
        (torch.ones(2), torch.ones(2, requires_grad=True), "requires_grad"),
        (torch.ones(2), torch.nn.Parameter(torch.ones(2), False), "type"),
        ([1, 2], (1, 2), "type"),
        ([1, 2], [1, 2, 3], "items"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "keys"),
        (1, True, "type"),
        (1.0, 1.0000001, "1.0"),
        (Pair(1, 2), Pair(1, 3), "right"),
        (np.zeros(2), np.zeros(2, dtype=np.float32), "float64"),
        ({1, 2}, {1, 3}, "1"),
    ],
)
def test_a_difference_is_found_and_named(expected: Any, actual: Any, part: str) -> None:
    if isinstance(expected, torch.Tensor) and part == "stride":
        actual = torch.ones(2, 2).as_strided((2, 2), (1, 2))
    found = difference(expected, actual)
    assert found is not None
    assert part in found


def test_a_stride_that_leads_nowhere_is_a_compilers() -> None:
    a, b = torch.ones(2, 1, 3), torch.ones(2, 1, 3).as_strided((2, 1, 3), (3, 9, 1))
    assert "stride" in str(difference(a, b))
    assert difference(a, b, Rules(unit_strides=False)) is None
    c = torch.ones(2, 1, 3).as_strided((2, 1, 3), (1, 3, 2))
    assert "stride" in str(difference(a, c, Rules(unit_strides=False)))


def test_nan_equals_nan_in_tensors() -> None:
    assert difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")])) is None


def test_lost_aliasing_is_a_difference() -> None:
    shared = torch.ones(2)
    found = str(difference([shared, shared], [torch.ones(2), torch.ones(2)]))
    assert "two places" in found
    assert difference([torch.ones(2), torch.ones(2)], [shared, shared]) is not None
    assert difference([shared, shared], [torch.ones(2)] * 2) is None


def test_a_cycle_ends() -> None:
    def world() -> list[Any]:
        items: list[Any] = [1]
        items.append(items)
        return items

    assert difference(world(), world()) is None


def test_module_attributes_and_buffers_count() -> None:
    def world() -> torch.nn.Module:
        module = torch.nn.BatchNorm1d(2)
        module.seen = [1]
        return module

    first, second = world(), world()
    assert difference(first, second) is None
    second.seen.append(2)
    assert "seen" in str(difference(first, second))
    third = world()
    third.running_mean += 1
    assert "running_mean" in str(difference(first, third))


def test_a_tolerance_forgives_small_differences_only() -> None:
    rules = Rules(atol=1e-3, rtol=1e-3)
    assert difference(torch.ones(2), torch.ones(2) + 1e-5, rules) is None
    assert difference(torch.ones(2), torch.ones(2) + 1e-1, rules) is not None


def test_closures_are_compared_by_what_they_hold() -> None:
    def make(value: float) -> Any:
        tensor = torch.full((2,), value)
        return lambda: tensor

    assert difference(make(1.0), make(1.0)) is None
    assert difference(make(1.0), make(2.0)) is not None


def test_a_stand_in_in_eagers_result_is_refused() -> None:
    with pytest.raises(StandInUsed):
        difference([make_stand_in("tensorflow.Tensor")()], [1])
