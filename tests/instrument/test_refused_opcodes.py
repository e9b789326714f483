"""What no probe reports is refused: the call runs eagerly, and says why."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import magpy

LEVELS = types.ModuleType("levels_of_a_test")


@pytest.fixture
def levels(monkeypatch):
    LEVELS.k = 0
    monkeypatch.setitem(sys.modules, LEVELS.__name__, LEVELS)
    return LEVELS


def starred(x):
    names = {}
    exec(f"from {LEVELS.__name__} import *", names)
    return x * names["k"]


def displayed(x):
    exec(compile("7", "<shell>", "single"))
    return x + 1


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_names_of_a_star_are_those_of_now(levels):
    compiled = magpy.compile(starred)
    for k in range(4):
        levels.k = k
        assert compiled(torch.ones(2)).tolist() == [k, k]
    assert "from module import *" in magpy.stats(compiled).reasons[0]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_what_a_shell_displays_is_displayed_in_every_call(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "displayhook", shown.append)
    compiled = magpy.compile(displayed)
    for _ in range(4):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert shown == [7] * 4
    assert "displayhook" in magpy.stats(compiled).reasons[0]
