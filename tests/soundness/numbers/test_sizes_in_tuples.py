"""Tuples of sizes (`(height, width)`, `torch.Size`) that differ from call to call are followed.

As arguments and held by objects (a batch that knows its size): two captures serve all of them, and
what a call goes by is guarded.
"""

import copy
import threading

import pytest
import torch

import magpy
from tests.comparison import assert_same


class Batch:
    def __init__(self, size):
        self.size, self.table = size, {"size": size}


def reshaped(x, size):
    return x.reshape(size) * 2


def unpacked(x, size):
    h, w = size
    return x.reshape(h, w) * h


def compared(x, size):
    return x.reshape(size) * 2 if x.numel() == size[0] * size[1] else x


def returned(x, size):
    return x.reshape(-1, size[1]).sum(0), size, size[0] + 1, len(size)


HELD = {
    "argument": lambda f: (f, lambda size: size),
    "attribute": lambda f: (lambda x, b: f(x, b.size), Batch),
    "item": lambda f: (lambda x, b: f(x, b.table["size"]), Batch),
}


@pytest.mark.parametrize("cls", [tuple, torch.Size])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("f", [reshaped, unpacked, compared, returned])
def test_two_captures_serve_all_sizes(f, held, cls):
    call, make = HELD[held](f)
    compiled = magpy.compile(call, backend="eager")
    for n in range(2, 14):
        x, given = torch.arange(3.0 * n), make(cls([n, 3]))
        assert_same(compiled(x, given), call(x, given))
    stats = magpy.stats(compiled)
    assert stats.captures == 2 and stats.hits == 10, stats


@pytest.mark.parametrize("cls", [tuple, torch.Size])
@pytest.mark.parametrize("held", HELD)
def test_what_a_call_goes_by_is_guarded(held, cls):
    def f(x, size):
        if size[0] > 5:
            x = x + 1
        if size[0] % 4 == 3:
            x = x * 3
        return x[: size[1]] * size[0], len(size), size

    call, make = HELD[held](f)
    compiled = magpy.compile(call, backend="eager")
    x = torch.arange(6.0)
    for n in (2, 3, 4, 5, 6, 7, 8, 11, 13, 15, 3, 2, 9, 1, 0, -1, True):
        for k in (2, 2, 3):
            for size in ([n, k], [n, k, 1]) if n == 9 else ([n, k],):
                given = make(cls(size))
                got, wanted = compiled(x, given), call(x, given)
                assert_same(got, wanted)
                assert type(got[2]) is cls and got[2] == tuple(size)
    other = (lambda size: make(list(size))) if cls is tuple else (lambda size: make(tuple(size)))
    given = other([4, 2])
    got, wanted = compiled(x, given), call(x, given)
    assert_same(got, wanted)
    assert type(got[2]) is type(wanted[2])
    assert magpy.stats(compiled).hits > 10


def test_the_object_holds_its_own_tuple_after_a_capture():
    compiled = magpy.compile(lambda x, b: x[: b.size[0]], backend="eager")
    for n in range(2, 8):
        batch = Batch(tuple([n, 3]))
        size = batch.size
        compiled(torch.ones(9), batch)
        assert batch.size is size


def test_dynamic_follows_them_at_once():
    compiled = magpy.compile(reshaped, backend="eager", dynamic=True)
    for n in range(2, 8):
        x = torch.arange(3.0 * n)
        assert_same(compiled(x, (n, 3)), reshaped(x, (n, 3)))
    assert magpy.stats(compiled).captures == 1


def writes(x, o):
    first = o.size[0]
    o.size = (o.size[0] + 1, o.size[1])
    return x * first + o.size[0], o.size


def keeps(x, o):
    o.kept = o.size
    o.table["kept"] = o.size
    return x.sum() * o.size[0]


def deletes(x, o):
    size = o.size
    del o.size
    return x * size[0]


@pytest.mark.parametrize("cls", [tuple, torch.Size])
@pytest.mark.parametrize("f", [writes, keeps, deletes])
def test_a_call_changes_what_holds_them(f, cls):
    compiled = magpy.compile(f, backend="eager")
    for n in (2, 4, 5, 6, 7, 8, 9, 3, 1, 0, 30, 2):
        ours, theirs = Batch(cls([n, 3])), Batch(cls([n, 3]))
        assert_same(compiled(torch.ones(2), theirs), f(torch.ones(2), ours))
        assert vars(theirs) == vars(ours)
        assert list(map(type, vars(theirs).values())) == list(map(type, vars(ours).values()))
    assert magpy.stats(compiled).hits >= 8


def test_threads_capture_and_call_with_objects_of_their_own():
    def f(x, o):
        return x[: o.size[0]].sum() * o.size[0]

    compiled, wrong = magpy.compile(f, backend="eager"), []

    def work(k):
        for n in range(40):
            batch, x = Batch((n % 7 + k + 2, 3)), torch.arange(20.0)
            if not torch.equal(compiled(x, batch), f(x, batch)) or batch.size[0] != n % 7 + k + 2:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert magpy.stats(compiled).hits


class Head(torch.nn.Module):
    """Keeps what it has made for the last size, as a detector keeps its anchors."""

    shape = None

    def __init__(self, lazily):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        if lazily:
            self.shape = None

    def forward(self, x):
        if self.shape != x.shape:
            self.grid, self.shape = torch.arange(x.shape[0]) * 2.0, x.shape
        return self.linear(x) + self.grid[:, None], self.shape


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("lazily", [False, True])
def test_the_first_size_that_is_kept_is_no_storm(lazily):
    torch.manual_seed(0)
    eager = Head(lazily)
    compiled = magpy.compile(copy.deepcopy(eager), backend="eager")
    for n in (2, 3, 4, 4, 5, 5, 3, 6, 7, 8, 8, 9):
        x = torch.randn(n, 3)
        assert_same(compiled(x), eager(x))
        assert_same(compiled.grid, eager.grid)
    stats = magpy.stats(compiled)
    assert stats.captures <= 5 and stats.regions == 1 and not stats.in_python, stats
