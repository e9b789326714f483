"""Numbers that Python's generators choose, and lists of numbers that tensors give: inputs.

Owns what is drawn among plain numbers (`choice`, `sample`, `shuffle`), what `tolist` gives, and
indexing with lists of such numbers.  Does not own that generators are left as eager leaves them
(tests/soundness/external_state/test_random_generators.py).
"""

from __future__ import annotations

import random

import pytest
import torch

from tests.soundness.worlds import assert_served, case, check_all

CASES = []


@case(CASES)
def rows_in_a_shuffled_order(compile):
    @compile
    def f(x):
        order = list(range(len(x)))
        random.shuffle(order)
        return x[order] * 2, order

    for _ in range(6):
        yield f(torch.arange(12.0).view(4, 3))
        yield random.random()


@case(CASES, refused="what the list holds by then differs in every call")
def a_shuffled_list_from_outside(compile):
    kept = [0.5, 1.5, 2.5, 4.0]

    @compile
    def f(x):
        random.shuffle(kept)
        return x * kept[0] + sum(kept)

    for i in range(6):
        yield f(torch.ones(3)), list(kept)
        if i == 3:
            kept.append(9.0)


@case(CASES)
def samples_of_numbers(compile):
    weights = (0.25, 0.5, 0.75, 3.0)

    @compile
    def f(x):
        rows = random.sample(range(len(x)), 2)
        a, b = random.sample(weights, 2)
        return x[rows] * a + b, random.sample([1, 2, 3], 3)

    for _ in range(6):
        yield f(torch.arange(12.0).view(4, 3))


@case(CASES)
def choices_of_numbers(compile):
    @compile
    def f(x):
        scale = random.choice([0.1, 0.2, 0.3])
        return x * scale, random.choice((1, 2, 5, 7)) + 1, random.choice(range(4))

    for _ in range(6):
        yield f(torch.ones(3))


@case(CASES)
def zeros_and_ones_of_other_types(compile):
    @compile
    def f(x):
        return x + 1, random.sample([0.0, 1.0], 2), random.sample([0, 1], 2), random.choice([0.0])

    for _ in range(6):
        yield f(torch.ones(3))


@case(CASES)
def what_is_drawn_decides(compile):
    @compile
    def f(x):
        order = [0, 1, 2]
        random.shuffle(order)
        return x + 1 if order[0] == 2 else x - random.choice([1, 2])

    for _ in range(12):
        yield f(torch.ones(3))


@case(CASES)
def objects_that_are_drawn(compile):
    tensors = [torch.ones(2), torch.zeros(2)]

    @compile
    def f(x):
        return x + random.choice(tensors), random.choice("ab")

    for _ in range(8):
        yield f(torch.ones(2))


@case(CASES)
def nothing_is_drawn(compile):
    @compile
    def f(x):
        one, none = [3], []
        random.shuffle(one)
        random.shuffle(none)
        return x * one[0], none

    for _ in range(4):
        yield f(torch.ones(2)), random.random()


@case(CASES)
def lists_of_floats_that_tensors_give(compile):
    @compile
    def f(x):
        rows = x.softmax(-1).tolist()
        best = x.sum().tolist()
        return {"rows": rows, "best": best, "half": [v / 2 for r in rows for v in r]}, x * rows[0][
            0
        ]

    for _ in range(6):
        yield f(torch.randn(2, 3))


@case(CASES)
def lists_of_other_kinds(compile):
    @compile
    def f(x):
        return (x > 0).tolist(), x.new_zeros(2, 0).tolist(), x[:1].tolist()[0] > 0, x + 1

    for i in range(6):
        yield f(torch.tensor([1.0, -1.0, float(i % 2)]))


@case(CASES)
def lists_that_are_changed_afterwards(compile):
    @compile
    def f(x):
        rows = x.tolist()
        rows[0].append(7.0)
        rows.reverse()
        return rows, torch.tensor(rows[0])

    for _ in range(5):
        yield f(torch.randn(2, 2))


@case(CASES)
def lists_that_index(compile):
    @compile
    def f(x):
        order = x[:, 0].argsort().tolist()
        y = x.clone()
        y[order] = x * 2
        return x[order], y, x[order, [0, 1, 0]], x[:, order]

    for _ in range(6):
        yield f(torch.randn(3, 3))


@case(CASES)
def a_list_of_sizes_that_is_asked(compile):
    @compile
    def f(x):
        sizes = [x.shape[0], 2]
        named = {"n": x.shape[0]}
        if sizes and named and not []:
            x = x * sizes[0]
        return x, any(n != sizes[0] for n in sizes[:1])

    for n in (3, 4, 5, 6, 7):
        yield f(torch.randn(n, 2))


test_two_worlds = check_all(CASES)


@pytest.mark.parametrize(
    ("program", "captures"),
    [
        (rows_in_a_shuffled_order, 1),
        (samples_of_numbers, 1),
        (choices_of_numbers, 1),
        (zeros_and_ones_of_other_types, 1),
        (nothing_is_drawn, 1),
        (lists_of_floats_that_tensors_give, 1),
        (lists_that_index, 2),
        (a_list_of_sizes_that_is_asked, 2),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_few_captures_serve_whatever_is_drawn(program, captures):
    assert_served(program, captures, hits=3)
