"""Elements of lists that calls store: those alone are stored again, and of the rest nothing counts.

Only how long such a list is does, as it says which element a place is.
"""

import copy
import threading
import weakref

import pytest
import torch

import magpy

X = torch.ones(2)


class Box:
    """What a list holds that is no plain value."""


def added_to(items, i, x):
    items[1] += 1
    return x + items[1]


def replaced(items, i, x):
    items[1] = i
    return x + 1


def from_the_end(items, i, x):
    items[-1] = i
    return x + items[-1]


def from_both_ends(items, i, x):
    before = items[1]
    items[-2] = i
    return x + before + items[1] + items[-2]


def swapped(items, i, x):
    items[0], items[1] = items[1], items[0]
    return x + 1


def swapped_twice(items, i, x):
    items[0], items[1] = items[1], items[0]
    items[0], items[1] = items[1], items[0]
    return x + 1


def shifted(items, i, x):
    for k in range(len(items) - 1):
        items[k] = items[k + 1]
    items[-1] = i
    return x + 1


def several_times(items, i, x):
    items[0] = i
    items[1] = i + 1
    items[0] = items[1]
    return x + items[0]


def by_results(items, i, x):
    items[0] = (x * i).sum().item()
    return x + items[0]


def tensors(items, i, x):
    items[1] = x * i
    return items[1] + 1


def kept(items, i, x):
    items[1] = items[1]
    return x + 1


def constant(items, i, x):
    items[1] = 7
    return x + 1


def objects(items, i, x):
    items[1] = box = Box()
    box.i = i
    return x + items[1].i


def appended_before(items, i, x):
    items.append(i)
    items[-1] += 1
    items[0] = i
    return x + items[-1]


def appended_after(items, i, x):
    items[0] = i
    items.append(i)
    return x + len(items)


def place_of_the_appended(items, i, x):
    items.append(i)
    items[3] = i + 1
    return x + items[3]


def measured(items, i, x):
    items[len(items) // 2] = i
    return x + len(items)


def all_of_them(items, i, x):
    for k in range(3):
        items[k] = i * k
    return x + 1


def read_as_a_whole(items, i, x):
    items[1] = i
    return x + sum(v for v in items if isinstance(v, int))


def read_as_a_whole_before(items, i, x):
    total = sum(v for v in items if isinstance(v, int))
    items[1] = i
    return x + total


def sorted_then(items, i, x):
    items[1] = i
    items.sort(key=str)
    items[0] = i
    return x + 1


def deleted_then(items, i, x):
    items[1] = i
    del items[0]
    items[0] += 1
    return x + items[0]


def by_slices(items, i, x):
    items[1] = i
    items[0:2] = [i, i + 1]
    return x + items[1]


def by_a_method(items, i, x):
    list.__setitem__(items, 1, i)
    items[0] = items[1]
    return x + items[0]


def by_a_computed_place(items, i, x):
    items[i % 2] = i
    return x + 1


def raising(items, i, x):
    items[0] = i
    if i % 2:
        raise ValueError(items[0])
    items[1] = i
    return x + 1


def raising_for_the_place(items, i, x):
    items[0] = i
    items[2] = i
    return x + 1


PROGRAMS = [
    added_to,
    replaced,
    from_the_end,
    from_both_ends,
    swapped,
    swapped_twice,
    shifted,
    several_times,
    by_results,
    tensors,
    kept,
    constant,
    objects,
    appended_before,
    appended_after,
    place_of_the_appended,
    measured,
    all_of_them,
    read_as_a_whole,
    read_as_a_whole_before,
    sorted_then,
    deleted_then,
    by_slices,
    by_a_method,
    by_a_computed_place,
    raising,
    raising_for_the_place,
]
CONTENTS = [
    [1, 2, 3],
    None,  # it stays what the call before has made of it
    None,
    None,
    [1, 7, 3],
    [4, 7, 3],
    None,
    [1.5, 2.5, 3.5, 4.5],
    None,
    [1, 2],
    None,
    [1],
    [],
    [1, 2, 3],
    None,
    [True, False, 2, 3, 4],
    None,
    ["a", 2, 3],
]


def told(v):
    """A value as it is compared: a tensor is not compared with ==, and 1 is not True."""
    if isinstance(v, torch.Tensor):
        return "tensor", v.tolist(), v.dtype
    if isinstance(v, Box):
        return "box", vars(v)
    return [told(x) for x in v] if isinstance(v, list) else (type(v), v)


def outcome(f, *args):
    try:
        return told(f(*args))
    except Exception as e:
        return type(e), str(e)


def in_a_closure(program):
    here = []

    def f(i, x):
        return program(here, i, x)

    return f, here


def in_an_attribute(program):
    box = Box()
    box.items = []

    def f(i, x):
        return program(box.items, i, x)

    return f, box.items


@pytest.mark.parametrize("held", [in_a_closure, in_an_attribute])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_lists_from_outside_hold_what_they_hold_in_eager(program, held):
    (eager, there), (f, here) = held(program), held(program)
    compiled = magpy.compile(f, backend="eager")
    for round_ in range(2):
        for i, content in enumerate(CONTENTS):
            if content is not None:
                there[:], here[:] = content, content
            assert outcome(compiled, i // 3, X) == outcome(eager, i // 3, X), (round_, i)
            assert told(here) == told(there), (round_, i)
    assert magpy.stats(compiled).hits > 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_lists_among_the_arguments_hold_what_they_hold_in_eager(program):
    compiled = magpy.compile(program, backend="eager")
    there, here = [], []
    for i, content in enumerate(CONTENTS * 2):
        if content is not None:
            there, here = list(content), list(content)
        assert outcome(compiled, here, i // 3, X) == outcome(program, there, i // 3, X), i
        assert told(here) == told(there), i
    assert magpy.stats(compiled).hits > 0


@pytest.mark.parametrize("size", [10, 10_000])
def test_guards_and_mock_code_are_on_the_elements_alone(size):
    numbers = [float(i) for i in range(size)]

    def f(x):
        numbers[5] = numbers[6]
        return x + 1

    told = magpy.explain(f, X)
    assert "numbers[6] is 6.0" in told.guard_summary
    assert "numbers[7]" not in told.guard_summary
    assert len(told.mock) < 2000
    assert "9.0" not in told.mock


@pytest.mark.parametrize("size", [10, 10_000])
def test_other_elements_may_be_others(size):
    numbers = [0.5 * i for i in range(size)]

    def f(x):
        numbers[5] = x.sum().item()
        numbers[-1] = 1
        return x + 1

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        compiled(X * i)
        assert numbers[5] == 2 * i
        assert numbers[-1] == 1
        for k in (0, 4, 6, -2):
            numbers[k] = object()
        numbers[5], numbers[-1] = "others", None
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits) == (1, 3)


def test_elements_that_stay_are_the_same_objects():
    boxes = [Box(), Box(), Box()]

    def f(x, given):
        given[0] = given[1]
        return x + 1

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        given = [Box(), Box(), *boxes]
        first, second, *rest = given
        compiled(X, given)
        assert given[0] is second
        assert given[1] is second
        assert all(a is b for a, b in zip(given[2:], rest, strict=True))
    assert magpy.stats(compiled).hits == 2


def test_numbers_that_are_stored_are_served_as_they_count():
    numbers = [0, 0, 0]

    def f(x):
        numbers[1] += 1
        return x + numbers[1]

    compiled = magpy.compile(f, backend="eager")
    for i in range(8):
        assert compiled(X).tolist() == [i + 2, i + 2]
        assert numbers == [0, i + 1, 0]
    assert magpy.stats(compiled).hits >= 5


def test_two_lists_become_one_list():
    def f(x, a, b):
        a[0] = 1
        b[0] = a[0] + 1
        a[1] = b[0]
        return x + a[0]

    compiled = magpy.compile(f, backend="eager")
    for same in (False, False, True, True, False):
        a, expected = [0, 0], [0, 0]
        b, other = (a, expected) if same else ([0, 0], [0, 0])
        assert torch.equal(compiled(X, a, b), f(X, expected, other))
        assert (a, b) == (expected, other)
    assert magpy.stats(compiled).hits == 3


def test_a_list_is_reached_in_two_ways():
    held = [0, 0]

    def f(x, given):
        held[0] = 5
        given[0] = held[0] + 1
        return x + held[0]

    def run(f, given):
        held[:] = [0, 0]
        return f(X, given).tolist(), list(held), list(given)

    compiled = magpy.compile(f, backend="eager")
    for given in ([0, 0], [0, 0], held, held, [0, 0]):
        assert run(compiled, given) == run(f, given)


def test_subclasses_of_list_store_as_they_say():
    class Doubling(list):
        def __setitem__(self, place, v):
            super().__setitem__(place, v * 2)

    class Plain(list):
        pass

    for cls in (Doubling, Plain):
        here, there = cls([1, 2, 3]), cls([1, 2, 3])

        def f(x, given, i):
            given[1] = i
            return x + given[1]

        compiled = magpy.compile(f, backend="eager")
        for i in (1, 1, 2, 2):
            assert torch.equal(compiled(X, here, i), f(X, there, i))
            assert here == there


def test_what_was_overwritten_dies_as_in_eager():
    held = [None, None]

    def f(x):
        held[1] = x * 2
        return x + 1

    compiled = magpy.compile(f, backend="eager")
    compiled(X)
    for _ in range(3):
        before = weakref.ref(held[1])
        compiled(X)
        assert before() is None
    assert magpy.stats(compiled).hits == 3


def test_gradients_flow_through_what_is_stored():
    held, expected = [None, None], [None, None]

    def step(x, held):
        held[0] = x * 3
        return (held[0] * x).sum()

    compiled = magpy.compile(step, backend="eager")
    for i in range(1, 4):
        x = torch.full((2,), float(i), requires_grad=True)
        y = copy.deepcopy(x)
        compiled(x, held).backward()
        step(y, expected).backward()
        assert torch.equal(x.grad, y.grad)
        assert torch.equal(held[0], expected[0])
        assert held[0].requires_grad
    assert magpy.stats(compiled).hits == 2


def test_other_threads_store_in_the_same_list():
    places, stop = [0, 0, 0, 0], threading.Event()

    def other():
        while not stop.is_set():
            places[3] += 1
            stop.wait(1e-4)

    def f(x, i):
        places[0] = i
        for _ in range(20):
            x = torch.relu(x @ x)
        places[1] = i
        return x + places[0]

    compiled = magpy.compile(f, backend="eager")
    thread = threading.Thread(target=other)
    thread.start()
    try:
        for i in (1, 1, 1, 1):
            compiled(torch.eye(2), i)
            assert places[:3] == [i, i, 0]
    finally:
        stop.set()
        thread.join()
    last = places[3]
    for _ in range(3):
        places[0] = places[1] = 9
        compiled(torch.eye(2), 1)
        assert places == [1, 1, 0, last]
    assert magpy.stats(compiled).hits >= 3
