"""Lists of sizes (`[height, width]`, a list of `(height, width)`) that differ from call to call.

As arguments and held by objects, unpacked, handed to operations, read one by one: their numbers are
followed, so two captures serve all of them, and what a call goes by is guarded.
"""

import threading

import pytest
import torch
import torch.nn.functional as F

import magpy
from tests.comparison import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")


class Holder:
    def __init__(self, size):
        self.size, self.table = size, {"size": size}


HELD = {
    "argument": lambda f: (f, lambda size: size),
    "attribute": lambda f: (lambda x, b: f(x, b.size), Holder),
    "item": lambda f: (lambda x, b: f(x, b["size"]), lambda size: {"size": size}),
    "keyword": lambda f: (lambda x, b: f(x, **b), lambda size: {"size": size}),
    "list": lambda f: (lambda x, b: f(x, b[1]), lambda size: [0, size]),
    "tuple": lambda f: (lambda x, b: f(x, b[0]), lambda size: (size, 3)),
}


def reshaped(x, size):
    return x.reshape(size) * 2


def unpacked(x, size):
    h, w = size
    return x.reshape(h, w) * h


def starred(x, size):
    return x.new_zeros(*size) + x.sum()


def made(x, size):
    return torch.zeros(size) + torch.ones([n + 1 for n in size]).sum() + x.sum()


def resized(x, size):
    return F.interpolate(x.view(1, 1, -1, 3), size=size)


def split(x, size):
    first, second = torch.split(torch.cat([x, x, x[:3]]), [size[0] * 3, x.numel() + 3])
    return first.sum(), second.sum()


def looped(x, size):
    for n in size:
        x = x * n
    return x


def returned(x, size):
    return x.sum(), size, size[0] + 1, len(size), [*size], max(size), sum(size)


def changed(x, size):
    size[0] += 1
    size.append(7)
    return x * size[0], size


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(
    "f", [reshaped, unpacked, starred, made, resized, split, looped, returned, changed]
)
def test_two_captures_serve_all_sizes(f, held):
    call, make = HELD[held](f)
    compiled = magpy.compile(call, backend="eager")
    for n in range(2, 14):
        x, ours, theirs = torch.arange(3.0 * n), make([n, 3]), make([n, 3])
        assert_same(compiled(x, theirs), call(x, ours))
        assert_same(theirs, ours)
    stats = magpy.stats(compiled)
    assert stats.captures == 2 and stats.hits == 10 and stats.share == 1, stats


OUTER = {
    "a list of tuples": lambda h, w: [(h, 3), (2, w)],
    "a list of torch.Size": lambda h, w: [torch.Size((h, 3)), torch.Size((2, w))],
    "a list of lists": lambda h, w: [[h, 3], [2, w]],
    "a tuple of lists": lambda h, w: ([h, 3], [2, w]),
    "a dict of lists": lambda h, w: {"a": [h, 3], "b": [2, w]},
}


@pytest.mark.parametrize("outer", OUTER)
def test_sizes_of_several_levels_are_followed(outer):
    def f(x, shapes):
        shapes = list(shapes.values()) if type(shapes) is dict else shapes
        parts = x.split([h * w for h, w in shapes], dim=1)
        made = [p.transpose(1, 2).reshape(1, 2, h, w) for p, (h, w) in zip(parts, shapes)]
        return made, [torch.zeros(s) for s in shapes], shapes

    compiled = magpy.compile(f, backend="eager")
    for n in range(2, 14):
        x = torch.arange(2.0 * (3 * n + 2 * (n + 1))).view(1, -1, 2)
        ours, theirs = OUTER[outer](n, n + 1), OUTER[outer](n, n + 1)
        assert_same(compiled(x, theirs), f(x, ours))
        assert_same(theirs, ours)
    stats = magpy.stats(compiled)
    assert stats.captures == 2 and stats.hits == 10, stats


@pytest.mark.parametrize("held", HELD)
def test_what_a_call_goes_by_is_guarded(held):
    def f(x, size):
        if size[0] > 5:
            x = x + 1
        if size[0] % 4 == 3:
            x = x * 3
        return x[: size[1]] * size[0], len(size), size

    call, make = HELD[held](f)
    compiled = magpy.compile(call, backend="eager")
    x = torch.arange(6.0)
    for n in (2, 3, 4, 5, 6, 7, 8, 11, 13, 15, 3, 2, 9, 1, 0, -1, True, 1 << 40, 2.0, 2.5):
        for k in (2, 2, 3):
            for size in ([n, k], [n, k, 1]) if n == 9 else ([n, k],):
                got, wanted = compiled(x, make(list(size))), call(x, make(list(size)))
                assert_same(got, wanted)
                assert list(map(type, got[2])) == list(map(type, size))
    given = make((4, 2))
    assert_same(compiled(x, given), call(x, given))
    assert magpy.stats(compiled).hits > 10


def test_one_list_at_two_places_and_two_lists_are_told_apart():
    def f(x, a, b):
        a[0] = a[0] + 1
        return x * b[0], x * a[0], a, b

    compiled = magpy.compile(f, backend="eager")
    for n in range(2, 14):
        ours, theirs = [n, 3], [n, 3]
        assert_same(compiled(torch.ones(2), theirs, theirs), f(torch.ones(2), ours, ours))
        assert_same(theirs, ours)
        other = [n + 1, n], [n + 2, 3]
        given = [*other[0]], [*other[1]]
        assert_same(compiled(torch.ones(2), *given), f(torch.ones(2), *other))
        assert_same(given, other)
    assert magpy.stats(compiled).hits > 10


@pytest.mark.parametrize("make", [lambda n: [n, 3], lambda n: [(n, 3), 2.5]])
def test_the_list_holds_its_own_numbers_after_a_capture(make):
    def f(x, a):
        return [x * n for n in a if type(n) is not tuple], [
            x[: n[0]] for n in a if type(n) is tuple
        ]

    compiled = magpy.compile(f, backend="eager")
    for n in range(1002, 1008):
        given = make(n)
        before = list(map(id, given))
        assert_same(compiled(torch.ones(9), given), f(torch.ones(9), given))
        assert list(map(id, given)) == before
    assert magpy.stats(compiled).captures == 2


def test_a_call_that_raises_leaves_the_list_its_numbers():
    def f(x, size):
        if size[0] == 5:
            raise ValueError(size[0])
        return x.reshape(size)

    compiled = magpy.compile(f, backend="eager")
    for n in (1002, 1003, 5, 5, 1004):
        given = [n, 3]
        first = given[0]
        if n == 5:
            with pytest.raises(ValueError, match="5"):
                compiled(torch.ones(3 * n), given)
        else:
            assert_same(compiled(torch.ones(3 * n), given), f(torch.ones(3 * n), given))
        assert given[0] is first


@pytest.mark.parametrize("dynamic", [True, False])
def test_dynamic_follows_them_or_does_not(dynamic):
    compiled = magpy.compile(reshaped, backend="eager", dynamic=dynamic)
    for n in range(2, 8):
        x = torch.arange(3.0 * n)
        assert_same(compiled(x, [n, 3]), reshaped(x, [n, 3]))
    assert (magpy.stats(compiled).captures <= 2) == dynamic


def test_a_list_of_another_length_and_a_longer_one_are_compared():
    compiled = magpy.compile(lambda x, size: x.new_zeros(size), backend="eager")
    x = torch.ones(2)
    for size in ([2, 3], [3, 4], [2], [3], [4, 5], [2, 3, 4], [3, 3, 5], [5], [], [1] * 9, [2] * 9):
        assert_same(compiled(x, list(size)), x.new_zeros(size))


def test_threads_capture_and_call_with_lists_of_their_own():
    def f(x, size):
        return x[: size[0]].sum() * size[0] + torch.zeros(size).sum()

    compiled, wrong = magpy.compile(f, backend="eager"), []

    def work(k):
        for n in range(40):
            size, x = [n % 7 + k + 2, 3], torch.arange(20.0)
            if not torch.equal(compiled(x, size), f(x, size)) or size != [n % 7 + k + 2, 3]:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
