"""Autocast's cache: the copies of parameters that it makes, and when it forgets them.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

import torch
from torch import nn

from tests.soundness.worlds import case, check_all

CASES = []
HALF = torch.bfloat16


def cleared(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        with torch.no_grad():
            layer.weight.add_(1)
        torch.clear_autocast_cache()
        return first, layer(t)


def nested(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        with torch.autocast("cpu", dtype=torch.float16):
            second = layer(t)
    return first, second


def below_inference_mode(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        layer.weight.data.add_(1)
        with torch.inference_mode():
            second = layer(t)
        return first, second, layer(t)


def two_contexts(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
    layer.weight.data.add_(1)
    with torch.autocast("cpu", dtype=HALF):
        return first, layer(t)


def changed_at_the_end(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        layer.weight.data.add_(1)
    with torch.autocast("cpu", dtype=HALF):
        return first, layer(t)


def switched_off_within(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        layer.weight.data.add_(1)
        with torch.autocast("cpu", enabled=False):
            second = layer(t)
        return first, second, layer(t)


def between_graphs(layer, t):
    with torch.autocast("cpu", dtype=HALF):
        first = layer(t)
        total = float(first.detach().sum())
        layer.weight.data.add_(1)
        second = layer(t) if total > -1e9 else first
        with torch.no_grad():
            return first, second, layer(t)


def switched_off_by_a_setting(layer, t):
    with torch.autocast("cpu", dtype=HALF, cache_enabled=False):
        first = layer(t)
        layer.weight.data.add_(1)
        return first, layer(t)


PROGRAMS = [
    cleared,
    nested,
    below_inference_mode,
    two_contexts,
    changed_at_the_end,
    switched_off_within,
    between_graphs,
    switched_off_by_a_setting,
]


@case(CASES, compilers="a compiler reads the weight where the program does")
def copies_of_parameters(compile):
    for f in PROGRAMS:
        layer, f = nn.Linear(2, 2), compile(f)
        for _ in range(3):
            yield f(layer, torch.ones(2, 2, requires_grad=True)), layer.weight


@case(CASES, compilers="a compiler reads the weight where the program does")
def copies_of_parameters_below_autocast(compile):
    for f in PROGRAMS:
        layer, f = nn.Linear(2, 2), compile(f)
        for _ in range(3):
            with torch.autocast("cpu", dtype=HALF):
                before = layer(torch.ones(2, 2))
                made = f(layer, torch.ones(2, 2, requires_grad=True))
                after = layer(torch.ones(2, 2))
            yield before, made, after, layer.weight


@case(CASES, compilers="a compiler reads the weight where the program does")
def an_entry_that_is_left(compile):
    """Nothing of what it has copied is left in autocast's cache."""
    layer = nn.Linear(2, 2)

    def f(t):
        with torch.autocast("cpu", dtype=HALF):
            first = layer(t)
            layer.weight.data.add_(1)
            torch.clear_autocast_cache()
            second = layer(t)
            return first if float(second.detach().sum()) > 0 else second * 2

    f = compile(f)
    for v in (1.0, 1.0, -50.0, 1.0, -50.0):
        yield f(torch.full((2, 2), v)), layer.weight
        torch.autocast_increment_nesting()
        depth = torch.autocast_decrement_nesting()
        with torch.autocast("cpu", dtype=HALF):
            made = layer(torch.ones(2, 2))
        yield made, depth


test_autocast = check_all(CASES)
