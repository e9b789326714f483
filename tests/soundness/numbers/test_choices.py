"""Plain values that are chosen by a number of data: one entry serves all choices."""

import pytest
import torch

import magpy
from tests.comparison import assert_same

NAMES = ("cat", "dog", "fish", "bird")


def of_a_list():
    names = list(NAMES)
    return lambda i, x: (names[i], x * 2), names


def of_a_tuple():
    return lambda i, x: (NAMES[i], x + len(NAMES[i])), []


def of_a_dict():
    names = dict(enumerate(NAMES))
    return lambda i, x: (names[i], x * 2), names


def of_numbers():
    scales = [0.5, 2.5, 3.5, 4.5]
    return lambda i, x: x * scales[i], scales


def of_made_ones():
    return lambda i, x: ([10, 20, 30, 40][i] + 1, {0: "a", 1: "b", 2: "c", 3: "d"}[i], x), []


def from_the_end():
    names = list(NAMES)
    return lambda i, x: (names[i - 4], f"it is a {names[i]}", x), names


def twice():
    ids = {"cat": 7, "dog": 8, "fish": 9, "bird": 10}
    return lambda i, x: (ids[NAMES[i]], x), ids


CHOICES = [of_a_list, of_a_tuple, of_a_dict, of_numbers, of_made_ones, from_the_end, twice]


def one_of(i):
    return torch.nn.functional.one_hot(torch.tensor(i % 4), 4).float()


@pytest.mark.parametrize("make", CHOICES)
def test_one_entry_serves_all_choices(make):
    (eager, _), (function, _) = make(), make()
    compiled = magpy.compile(lambda x: function(int(x.argmax()), x), backend="eager")
    for i in (0, 1, 2, 3, 2, 1, 0):
        assert_same(compiled(one_of(i)), eager(i, one_of(i)), str(i))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, 6, 0)


@pytest.mark.parametrize("make", [of_a_list, of_a_dict, of_numbers, from_the_end, twice])
def test_the_values_change_between_calls(make):
    (eager, own), (function, held) = make(), make()
    compiled = magpy.compile(lambda x: function(int(x.argmax()), x), backend="eager")
    for i in range(12):
        assert_same(compiled(one_of(i)), eager(i % 4, one_of(i)), str(i))
        for values in (own, held) if i % 3 == 2 else ():
            key = list(values)[1] if isinstance(values, dict) else 1
            values[key] = values[key] * 2
        if i == 5 and isinstance(own, list):
            own.append(own[0])
            held.append(held[0])


def test_a_key_that_is_not_there_raises_as_in_eager():
    names = {0: "a", 1: "b"}
    listed = ["a", "b"]

    def f(x, names):
        return names[int(x.sum())], x + 1

    for values in (names, listed):
        compiled = magpy.compile(f, backend="eager")
        for i in (0, 1, 2, 0, 1, 3):
            x = torch.tensor([float(i)])
            if i > 1:
                with pytest.raises((KeyError, IndexError)) as raised:
                    compiled(x, values)
                with pytest.raises(type(raised.value), match=f"^{raised.value}$"):
                    f(x, values)
            else:
                assert_same(compiled(x, values), f(x, values), str(i))


def test_what_the_call_itself_puts_there_is_chosen():
    def make():
        kept = ["a", "b", "c"]

        def f(x, name):
            kept[1] = name
            kept.append("e")
            found = kept[int(x.sum())]
            kept.pop()
            return found, x * 2

        return f

    eager, compiled = make(), magpy.compile(make(), backend="eager")
    for i in range(12):
        x = torch.tensor([float(i % 4)])
        assert_same(compiled(x, f"n{i // 4}"), eager(x, f"n{i // 4}"), str(i))


def test_values_of_several_types_and_objects_are_as_in_eager():
    mixed, objects = [1, "a", 2.5, None], [torch.ones(1), torch.zeros(1), [1], [2]]

    def f(x):
        i = int(x.argmax())
        return mixed[i], objects[i], x + 1

    compiled = magpy.compile(f, backend="eager")
    for i in (0, 1, 2, 3, 0, 1, 2, 3):
        got = compiled(one_of(i))
        assert_same(got, f(one_of(i)), str(i))
        assert got[1] is objects[i]
