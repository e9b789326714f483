"""The passes: their order and names, and results without the optional ones."""

import re
from pathlib import Path

import pytest
import torch

import magpy
from magpy.errors import CaptureError
from magpy.replay import pipeline
from tests.comparison import assert_same

OPTIONAL = [p.name for p in pipeline.PASSES if p.optional]
ROW = re.compile(r"^\| `([a-z-]+)`( \(optional\))? \|", re.MULTILINE)


def looks_and_goes_on(x):
    y = (x * 2).relu()
    scale = x.sum().item()
    if scale > 0:
        y = y + scale
    return y / (x.abs().max() + 1)


def checks_constants(x):
    positions = torch.arange(x.shape[0])
    if bool((positions < 100).all()):
        x = x + positions[:, None]
    return x.cos()


def transforms_and_sizes(x):
    rows = x.shape[0] * 2 + 1
    gradient = torch.func.grad(lambda t: (t * t).sum())(x)
    return gradient.sum(0), rows


def changes_its_argument(x):
    small = bool(x.mean() < 100)
    x.add_(1)
    return x.sin() if small else x


PROGRAMS = [looks_and_goes_on, checks_constants, transforms_and_sizes, changes_its_argument]


def test_the_passes_are_those_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "internals" / "graphs.md").read_text()
    documented = [(name, bool(optional)) for name, optional in ROW.findall(text)]
    assert documented == [(p.name, p.optional) for p in pipeline.PASSES]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("left_out", [[name] for name in OPTIONAL] + [OPTIONAL], ids=" ".join)
def test_results_are_those_of_eager_without_optional_passes(program, left_out, monkeypatch):
    monkeypatch.setattr(magpy.config, "skip_passes", frozenset(left_out))
    c = magpy.compile(program, backend="eager")
    for factor in (1.0, -1.0, 0.5, 300.0):
        x = torch.arange(12.0).reshape(4, 3) * factor
        mine = x.clone()
        assert_same((c(mine), mine), (program(x), x))
    assert magpy.stats(c).hits >= 1


def test_a_pass_without_which_entries_are_wrong_is_not_left_out(monkeypatch):
    monkeypatch.setattr(magpy.config, "skip_passes", frozenset(["undo"]))
    with pytest.raises(CaptureError, match="'undo' cannot be left out; those that can: constant"):
        magpy.compile(torch.sin, backend="eager", fullgraph=True)(torch.ones(2))
    monkeypatch.setattr(magpy.config, "skip_passes", frozenset(["no-such-pass"]))
    with pytest.raises(magpy.OptionError, match="no-such-pass"):
        pipeline.passes()


def test_without_hoisting_checks_come_after_the_graph(monkeypatch):
    def f(x):
        y = x.exp()
        return y.sin() if x.sum() > 0 else y

    def graphs_around_the_check():
        before, _, after = magpy.explain(f, torch.ones(3)).mock.partition("return MISS")
        return before.count("= segment"), after.count("= segment")

    assert graphs_around_the_check() == (0, 1)
    monkeypatch.setattr(magpy.config, "skip_passes", frozenset(["hoist-checks"]))
    assert graphs_around_the_check() == (1, 0)
