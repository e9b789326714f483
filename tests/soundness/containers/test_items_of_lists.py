"""Of a list that is read by its places these count alone, in captures and in every call."""

import gc
import weakref

import pytest
import torch

import magpy

X = torch.ones(2)


def guards_of(f, *args):
    return magpy.explain(f, *args).guard_summary


@pytest.mark.parametrize("size", [10, 10_000])
def test_guards_are_on_the_items_that_were_read(size):
    numbers = [float(i) for i in range(size)]
    text = guards_of(lambda x: x + numbers[3] + numbers[-1], X)
    assert "numbers[3] is 3.0" in text
    assert f"numbers[-1] is {size - 1.0}" in text
    assert "numbers[4]" not in text
    assert "len(numbers)" not in text
    text = guards_of(lambda x, given: x + given[3], X, numbers)
    assert "given[3] is 3.0" in text
    assert "given[4]" not in text
    assert "len(given)" not in text


@pytest.mark.parametrize("size", [10, 10_000])
def test_guards_of_slices_are_on_their_items_and_the_length(size):
    numbers = [float(i) for i in range(size)]
    for f, of in (
        (lambda x: x + sum(numbers[2:4]), [2, 3]),
        (lambda x: x + sum(numbers[:2]), [0, 1]),
        (lambda x: x + sum(numbers[-2:]), [size - 2, size - 1]),
        (lambda x: x + sum(numbers[3::-2]), [1, 3]),
        (lambda x: x + (1 if numbers else 2), []),
        (lambda x: x + len(numbers[size:]), []),
    ):
        text = guards_of(f, X)
        for i in (0, 1, 2, 3, 4, 5, size - 3, size - 2, size - 1):
            assert (f"numbers[{i}] is {float(i)}" in text) is (i in of), (of, text)
        assert f"numbers has {size} items" in text or f"len(numbers) is {size}" in text, text


class Holder:
    pass


def by_closure(index):
    numbers = []

    def f(x, i):
        return x + numbers[index] * 2

    return f, numbers


def by_attribute(index):
    holder = Holder()
    holder.numbers = []

    def f(x, i):
        return x + holder.numbers[index] * 2

    return f, holder.numbers


def appended(index):
    numbers = []

    def f(x, i):
        y = x + numbers[index] * 2
        numbers.append(i)
        return y + numbers[-1] + numbers[index]

    return f, numbers


def stored(index):
    numbers = []

    def f(x, i):
        y = x + numbers[index] * 2
        numbers[index] = i
        return y + numbers[index]

    return f, numbers


def sliced(index):
    numbers = []

    def f(x, i):
        return x + sum(numbers[index : index + 2]) + len(numbers[-1:])

    return f, numbers


def sliced_and_changed(index):
    numbers = []

    def f(x, i):
        before = numbers[:1]
        numbers[index] = i
        after = numbers[:1]
        numbers.append(i)
        return x + sum(before) * 3 + sum(after) + sum(numbers[-1:])

    return f, numbers


def asked_whether_it_is_empty(index):
    numbers = []

    def f(x, i):
        y = x + 1 if numbers else x
        numbers.append(i)
        return y * 2 if numbers and numbers[index] else y

    return f, numbers


def sorted_afterwards(index):
    numbers = []

    def f(x, i):
        y = x + numbers[index] * 2
        numbers.sort()
        return y + numbers[index]

    return f, numbers


def measured_afterwards(index):
    numbers = []

    def f(x, i):
        return x + numbers[index] * 2 + len(numbers)

    return f, numbers


def joined(index):
    numbers = []

    def f(x, i):
        y = x + numbers[index]
        return y, [*numbers, i]

    return f, numbers


PROGRAMS = [
    by_closure,
    by_attribute,
    appended,
    stored,
    sliced,
    sliced_and_changed,
    asked_whether_it_is_empty,
    sorted_afterwards,
    measured_afterwards,
    joined,
]
CONTENTS = [
    [1.0, 2.0, 3.0],
    [1.0, 5.0, 3.0],
    [1.5, 2.0, 3.5],
    [1.0, 2.0, 3.0, 4.0],
    [3, 2, 1],
    [7],
    [],
    [1.0, 2.0, 3.0],
    [0.5, 2.5, 1.5],
    [9, 8, 7, 6],
]


@pytest.mark.parametrize("index", [0, 1, -1])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_lists_change_between_calls(program, index):
    (eager, there), (f, here) = program(index), program(index)
    compiled = magpy.compile(f, backend="eager")
    for i, content in enumerate(CONTENTS * 2):
        there[:], here[:] = content, content
        try:
            expected = eager(X, i)
        except IndexError as e:
            with pytest.raises(IndexError, match=str(e)):
                compiled(X, i)
        else:
            got = compiled(X, i)
            assert str(got) == str(expected)
        assert here == there


def test_objects_in_a_slice_are_those_that_are_there():
    held = [torch.ones(2) * i for i in range(6)]

    def f(x):
        part = held[1:3]
        return part, part[0] + x

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        part, total = compiled(X)
        assert [id(v) for v in part] == [id(held[1]), id(held[2])]
        assert torch.equal(total, held[1] + X)
        held[1], held[5] = torch.ones(2) * i, None
    assert magpy.stats(compiled).hits == 3


def test_numbers_in_a_slice_are_inputs():
    window = [0.0] * 20

    def f(x):
        return x + sum(window[4:7])

    compiled = magpy.compile(f, backend="eager")
    for i in range(8):
        window[5] = float(i)
        window[8] = object()
        assert torch.equal(compiled(X), X + i)
    assert magpy.stats(compiled).hits >= 5


@pytest.mark.parametrize("index", [0, 2])
def test_numbers_in_lists_of_any_length_are_inputs(index):
    def f(x, rows):
        return x * rows[0] + rows[index]

    compiled = magpy.compile(f, backend="eager")
    for i in range(9):
        rows = [i + j / 4 for j in range(3 + i % 4)]
        assert torch.equal(compiled(X, rows), f(X, rows))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits) == (2, 7)


def test_what_was_not_read_is_not_held():
    class Item:
        factor = 2.0

    items = [Item(), Item()]
    compiled = magpy.compile(lambda x: x * items[0].factor, backend="eager")
    compiled(X)
    compiled(X)
    dead = weakref.ref(items.pop())
    gc.collect()
    assert dead() is None
    compiled(X)
    assert magpy.stats(compiled).hits == 2


def test_of_a_list_whose_length_is_asked_for_only_that_counts():
    def f(x, rows):
        return x + len(rows)

    compiled, x = magpy.compile(f, backend="eager"), torch.ones(2)
    for rows in ([1, 2, 3], ["a", None, []], [3, 2, 1], [[], {}, 5]):
        assert torch.equal(compiled(x, rows), x + 3)
    assert magpy.stats(compiled).captures == 1
    assert torch.equal(compiled(x, [1]), x + 1)


def changed_before(rows):
    rows.append(1)
    return len(rows)


def changed_after(rows):
    n = len(rows)
    rows.append(n)
    return n


def changed_between(rows):
    n = len(rows)
    del rows[0]
    return n * 10 + len(rows)


def read_as_a_whole(rows):
    return len(rows) + sum(rows)


@pytest.mark.parametrize("asked", [changed_before, changed_after, changed_between, read_as_a_whole])
def test_a_length_of_a_list_that_the_call_changes(asked):
    compiled = magpy.compile(lambda x, rows: x + asked(rows), backend="eager")
    rows, other, x = list(range(20)), list(range(20)), torch.ones(2)
    for i in range(6):
        assert torch.equal(compiled(x, rows), x + asked(other))
        assert rows == other
        if i == 3:
            rows[1] = other[1] = 50
