"""What is told of TorchScript's functions, and what of its objects is refused."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

import magpy
from magpy.models import callables, torchscript
from magpy.models.c_function_tables import Effect
from tests.comparison import assert_same


@torch.jit.script
def _appends(t, held: list[int]):
    held.append(1)
    return t * len(held)


@torch.jit.script
def _sets(t, held: dict[str, int]):
    held["a"] = 2
    return t * held["a"]


class _Held(NamedTuple):
    k: int
    held: list[int]


@torch.jit.script
def _appends_within(t, given: _Held):
    given.held.append(given.k)
    return t * len(given.held)


def test_a_change_of_a_container_is_an_effect():
    assert torchscript.look(_appends).affects
    assert torchscript.look(_sets).affects
    assert torchscript.look(_appends_within).affects


def test_containers_that_scripts_change_are_changed_in_each_call():
    for make, f in (
        (lambda: (torch.jit.script([0]),), _appends),
        (lambda: (torch.jit.script({"b": 1}),), _sets),
    ):
        given = make()
        compiled = magpy.compile(lambda t, f=f, given=given: f(t, *given), backend="eager")
        expected = [2, 3, 4] if f is not _sets else [2, 2, 2]
        assert [int(compiled(torch.ones(1))) for _ in range(3)] == expected
        assert len(given[0]) == (4 if f is _appends else 2)


def test_what_objects_of_torchscript_hold_is_left_to_python():
    module, numbers = torch.jit.script(nn.Linear(2, 2)), torch.jit.script([1])
    for f in (module._c.setattr, module._c.getattr, numbers.append):
        assert callables.effect_of(f.__func__) is Effect.REFUSE
    assert callables.name_of(module._c.setattr.__func__) == "ScriptObject.setattr"


@torch.jit.script
def _crops(t, n: int):
    if t.size(0) > n:
        t = t[:n]
    return t


@torch.jit.script
def _scales(t, n: int):
    if n > 3:
        t = t * n
    return t


@torch.jit.script
def _adds(t, n: int):
    for k in range(n):
        t = t + k
    return t


@torch.jit.script
def _either(t, n: int):
    if n > 3:
        return t, t * 2
    return t + 1, t


@torch.jit.script
def _perhaps(t, n: int) -> torch.Tensor | None:
    found: torch.Tensor | None = None
    if n > 3:
        found = t * 2
    return found


@torch.jit.script
def _drops(t, p: float):
    if p == 0.0:
        return t
    return t * (1 - p)


@pytest.mark.parametrize("f", [_crops, _scales, _adds, _either, _perhaps, _drops])
@pytest.mark.parametrize("numbers", [[0, 1, 2, 5, 9, 3, 4], [9, 5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_what_may_give_back_an_argument_gives_what_eager_gives(f, numbers, regions, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", regions)

    def program(t, n):
        found = f(t + 1, n / 4 if f is _drops else n)
        if isinstance(found, tuple):
            return [x * 2 for x in found]
        return t.sum() if found is None else found * 2

    compiled = magpy.compile(program, backend="eager")
    for rows in (2, 6, 3, 8):
        for n in numbers:
            t = torch.ones(rows, 2)
            assert_same(compiled(t, n), program(t, n), f"{rows} {n}")


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_whether_it_gave_back_its_argument_is_found_in_each_call(regions, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", regions)

    def asked(t):
        found = _crops(t, 5)
        return found is t, found

    def written(t):
        t = t + 0
        found = _scales(t, t.size(0) - 2)
        found.add_(1)
        return t, found

    for program in (asked, written):
        compiled = magpy.compile(program, backend="eager")
        for rows in (8, 9, 7, 2, 3, 6, 4):  # those for which it makes something come first
            t = torch.ones(rows, 2)
            assert_same(compiled(t), program(t), f"{program.__name__} {rows}")
