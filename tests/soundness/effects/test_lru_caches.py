"""`functools.lru_cache`: functions that compute are looked through, others run when eager's do."""

import functools

import pytest
import torch

import magpy
from magpy.capture.python import memos
from tests.comparison import assert_same


@pytest.fixture(autouse=True)
def of_a_package(monkeypatch):
    """The functions of this file count as those of an installed package."""
    monkeypatch.setattr(memos, "in_package", lambda file: file == __file__)


def served(f, calls, **options):
    """The figures of a compiled function after calls, each compared with eager's."""
    compiled = magpy.compile(f, backend="eager", **options)
    for args in calls:
        assert_same(compiled(*args), f(*args))
    return magpy.stats(compiled)


OF_SIZES = [(torch.randn(2, n, 3),) for n in (4, 6, 8, 10, 6, 12, 4, 14)]


class Recipe:
    """Hashable by its identity, as those of einops are."""

    def __init__(self, parts):
        self.parts = parts


@functools.lru_cache(256)
def plan(recipe, shape, axes):
    """What einops computes of a shape: lists, a dict, sizes."""
    known = dict(axes)
    rows, rest = divmod(shape[1], known["h"])
    if rest:
        raise ValueError("the shape does not fit")
    return [shape[0], known["h"], rows, shape[2]], {3: 1}, None, (recipe.parts, rows)


RECIPE = Recipe((2, 0, 1))


def rearranged(x):
    shape, added, nothing, (parts, rows) = plan(RECIPE, tuple(x.shape), (("h", 2),))
    assert added[3] == 1 and nothing is None and parts == (2, 0, 1)
    return x.reshape(shape).permute(0, 3, 1, 2).sum((2, 3)) * rows


def test_two_captures_serve_all_sizes():
    stats = served(rearranged, OF_SIZES)
    # The third is for another way of `reshape`.
    assert stats.captures <= 3 and stats.eager_calls == 0, stats


def test_sizes_that_the_cache_knows_are_followed_too():
    """Of einops: a pattern that is used twice finds what its first use has filled in."""
    plan.cache_clear()

    def twice(x):
        return rearranged(x) + rearranged(x * 2)

    stats = served(twice, [(torch.randn(2 + i % 3, 4 + 2 * (i % 5), 3),) for i in range(20)])
    assert stats.captures <= 3 and stats.eager_calls == 0, stats


def test_the_first_call_fills_the_cache_and_is_captured():
    plan.cache_clear()
    stats = served(rearranged, OF_SIZES[:1] * 3)
    assert stats.captures == 1 and stats.hits == 2, stats
    assert plan.cache_info().currsize == 1


def test_an_error_of_the_function_is_eager_s():
    compiled = magpy.compile(rearranged, backend="eager")
    for args in OF_SIZES:
        compiled(*args)
    with pytest.raises(ValueError, match="does not fit"):
        compiled(torch.randn(2, 5, 3))
    assert_same(compiled(*OF_SIZES[0]), rearranged(*OF_SIZES[0]))


class Table:
    """With a cached method, and one that counts."""

    def __init__(self):
        self.calls = []

    @functools.lru_cache  # noqa: B019
    def width(self, n):
        return n * 2 + 1

    @functools.lru_cache  # noqa: B019
    def counted(self, n):
        self.calls.append(n)
        return n * 2

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def forgetful(self, n):
        self.calls.append(n)
        return n


def test_a_cached_method():
    table = Table()
    stats = served(lambda x: x.new_zeros(table.width(x.shape[1])) + 1, OF_SIZES)
    assert stats.captures == 2, stats


@pytest.mark.parametrize("name", ["counted", "forgetful"])
def test_a_function_that_does_more_runs_as_often_as_in_eager(name):
    tables = Table(), Table()

    def call(table, x):
        return x.sum() * getattr(table, name)(x.shape[1])

    compiled = magpy.compile(call, backend="eager")
    for (x,) in OF_SIZES * 2:
        assert_same(compiled(tables[0], x), call(tables[1], x))
    assert tables[0].calls == tables[1].calls


@functools.lru_cache
def rows_of(n):
    return [n, n + 1]


def kept(x, into):
    into.append(rows_of(x.shape[1]))
    return x + 1


def returned(x, into):
    return rows_of(x.shape[1]), x + 1


def changed(x, into):
    rows = rows_of(x.shape[1])
    rows.append(len(rows))
    return x * len(rows)


def changed_in_place(x, into):
    rows = rows_of(x.shape[1])
    rows[0] += 1
    return x * rows[0]


def compared(x, into):
    return x * (rows_of(x.shape[1]) is rows_of(x.shape[1]))


@pytest.mark.parametrize("f", [kept, returned, changed, changed_in_place, compared])
def test_what_a_cache_gives_is_one_object_in_all_calls(f):
    found = []
    for wrap in (lambda f: f, functools.partial(magpy.compile, backend="eager")):
        rows_of.cache_clear()
        g, into, seen = wrap(f), [], []
        for (x,) in OF_SIZES * 2:
            seen.append(g(x, into))
        objects = [*into, *(r[0] for r in seen if type(r) is tuple)]
        found.append((seen, into, [[a is b for b in objects] for a in objects]))
    assert_same(found[1], found[0])


def test_arguments_without_a_hash_raise_as_in_eager():
    def f(x):
        return plan(RECIPE, [*x.shape], ()) and x

    compiled = magpy.compile(f, backend="eager")
    for args in OF_SIZES[:4]:
        with pytest.raises(TypeError, match="unhashable"):
            compiled(*args)


def test_what_the_function_reads_is_guarded():
    factor = [3]

    @functools.lru_cache
    def scaled(n):
        return n * factor[0]

    def f(x):
        return x * scaled(x.shape[1])

    compiled = magpy.compile(f, backend="eager")
    for args in OF_SIZES:
        assert_same(compiled(*args), f(*args))
    scaled.cache_clear()
    factor[0] = 5
    for args in OF_SIZES:
        assert_same(compiled(*args), f(*args))


def test_a_cache_that_has_not_heard_of_a_change_gives_what_it_knows():
    """What is followed may be another value by now: eager goes by what is remembered."""
    factor = [2]

    @functools.lru_cache
    def scaled(n):
        return [n * factor[0], n]

    def f(x):
        a, b = scaled(x.shape[1])
        return x.sum() * a + b

    compiled = magpy.compile(f, backend="eager")
    for rows, now in ((3, 2), (4, 2), (5, 2), (3, 2), (3, 5), (4, 5), (7, 5), (5, 5), (3, 7)):
        factor[0], x = now, torch.ones(2, rows)
        assert_same(compiled(x), f(x))


def test_the_figures_of_a_cache_that_the_call_asks_for():
    @functools.lru_cache
    def twice(n):
        return n * 2

    def f(x):
        return x * twice(x.shape[1]), twice.cache_info().currsize

    def calls(f):
        twice.cache_clear()
        return [f(*args) for args in OF_SIZES]

    assert_same(calls(magpy.compile(f, backend="eager")), calls(f))


@pytest.mark.usefixtures("of_a_package")
def test_a_cache_that_eager_code_has_filled_is_looked_through():
    """An evaluation in eager mode was there first."""

    @functools.lru_cache
    def recipe(rows, columns):
        return [rows * columns, (columns, rows)]

    def f(x):
        count, shape = recipe(x.shape[0], x.shape[1])
        return x * count + shape[0]

    compiled = magpy.compile(f, backend="eager")
    inputs = [torch.ones(rows, 3) for rows in (4, 7, 6, 5, 3, 8, 9)]
    expected = [f(x) for x in inputs]
    for x, y in zip(inputs, expected, strict=True):
        assert_same(compiled(x), y)
    assert magpy.stats(compiled).captures <= 3
    assert magpy.stats(compiled).share == 1.0


@pytest.mark.usefixtures("of_a_package")
def test_a_cached_function_that_does_more_than_compute_runs_no_second_time():
    """What eager code has put there is not computed again: a warning is given once."""
    seen = []

    @functools.lru_cache
    def warn_once(text):
        seen.append(text)

    @functools.lru_cache
    def noted(n):
        seen.append(n)
        return n * 2

    @functools.lru_cache
    def called_back(n, note):
        note(n)
        return n * 3

    def note(n):
        seen.append(-n)

    def f(x):
        warn_once(f"length {x.shape[0]}")
        return x * noted(x.shape[0]) + called_back(x.shape[0], note)

    compiled = magpy.compile(f, backend="eager")
    inputs = [torch.ones(rows, 2) for rows in (3, 4, 5, 6, 7)]
    expected = [f(x) for x in inputs]
    before = list(seen)
    for x, y in zip(inputs, expected, strict=True):
        assert_same(compiled(x), y)
    assert seen == before
