"""Arrays among the arguments whose sizes differ from call to call: two captures serve them all."""

import numpy as np
import pytest
import torch

import magpy

WEIGHT = torch.linspace(-1, 1, 12).reshape(4, 3)


def a_tensor_of_it(rows):
    return torch.from_numpy(rows).float() @ WEIGHT


def copied(rows):
    return torch.tensor(rows, dtype=torch.float32) @ WEIGHT


def taken_as_a_tensor(rows):
    return torch.as_tensor(rows).float().sum(0) @ WEIGHT


def in_and_out(rows):
    return (torch.from_numpy(rows).float() @ WEIGHT).softmax(-1).numpy()


def computed_before(rows):
    scaled = (rows - rows.mean(0)) / (rows.std(0) + 1)
    return torch.from_numpy(scaled).float() @ WEIGHT


def computed_after(rows):
    y = (torch.from_numpy(rows).float() @ WEIGHT).numpy()
    return (y - y.min(0)) * 2, y.argmax(-1), float(y.sum())


def there_and_back(rows):
    y = (torch.from_numpy(rows).float() @ WEIGHT).numpy()
    return torch.from_numpy(np.concatenate([y, y[:1]])) * 2


def measured(rows):
    x = torch.from_numpy(rows).float() @ WEIGHT
    return x * len(rows) + rows.shape[0] * rows.size


def made_of_its_shape(rows):
    return torch.zeros(rows.shape[0], 3) + torch.from_numpy(rows).float() @ WEIGHT


def reshaped(rows):
    n = rows.shape[0]
    return torch.from_numpy(rows).float().reshape(n * 2, 2).sum(-1).reshape(n, 2)


def reshaped_in_numpy(rows):
    return torch.from_numpy(rows.reshape(-1, 2)).float() * 2


def transposed(rows):
    return WEIGHT.T @ torch.from_numpy(np.ascontiguousarray(rows.T)).float(), rows.T.shape


def joined(rows):
    return torch.from_numpy(np.concatenate([rows, rows + 1])).float() @ WEIGHT


def split(rows):
    first, second = np.array_split(rows, 2)
    return torch.from_numpy(first).float() @ WEIGHT, second


def masked(rows):
    return torch.from_numpy(rows[rows[:, 0] > 0]).float() @ WEIGHT


def decided_by_size(rows):
    x = torch.from_numpy(rows).float() @ WEIGHT
    return x + 1 if rows.shape[0] > 3 else x - 1


def bytes_counted(rows):
    return torch.from_numpy(rows).float() @ WEIGHT, rows.nbytes, rows.strides, rows.ndim


def gone_through(rows):
    return sum((torch.from_numpy(row).float() @ WEIGHT for row in rows), torch.zeros(3))


def unpacked(rows):
    first, *others = rows
    return torch.from_numpy(first).float() @ WEIGHT, len(others)


def as_lists(rows):
    return torch.tensor(rows.tolist()) @ WEIGHT


def told(rows):
    return torch.from_numpy(rows).float() @ WEIGHT, f"{rows.shape} {len(rows)}"


def one_of_them(rows):
    return torch.from_numpy(rows[3]).float() @ WEIGHT


def mixed_with_a_tensor(rows):
    return (torch.ones(4) * rows).float() @ WEIGHT


def given_back(rows):
    return rows, torch.from_numpy(rows).float() @ WEIGHT


def kept_as_it_lies(rows):
    return np.asarray(rows).base is None, torch.from_numpy(rows).float().is_contiguous()


SERVED = [
    a_tensor_of_it,
    copied,
    taken_as_a_tensor,
    in_and_out,
    computed_before,
    computed_after,
    there_and_back,
    measured,
    made_of_its_shape,
    reshaped,
    reshaped_in_numpy,
    joined,
    split,
    given_back,
]
RIGHT = [
    transposed,
    masked,
    decided_by_size,
    bytes_counted,
    gone_through,
    unpacked,
    as_lists,
    told,
    one_of_them,
    mixed_with_a_tensor,
    kept_as_it_lies,
]


def outcome(f, rows):
    try:
        return repr(tuple(map(shown, f(rows)))) if isinstance(f(rows), tuple) else shown(f(rows))
    except Exception as e:
        return type(e), str(e)


def shown(v):
    if isinstance(v, np.ndarray):
        return v.dtype, v.shape, v.strides, v.flags.writeable, v.tolist()
    if isinstance(v, torch.Tensor):
        return v.dtype, v.shape, v.stride(), v.tolist()
    return type(v), v


def arrays(sizes):
    draw = np.random.default_rng(0)
    return [np.round(draw.normal(size=(n, 4)), 2) for n in sizes]


def run(use, given, dynamic=None):
    compiled = magpy.compile(use, backend="eager", dynamic=dynamic)
    for i, rows in enumerate(given):
        before = rows.copy()
        expected = outcome(use, rows)
        assert outcome(compiled, rows) == expected, i
        assert np.array_equal(rows, before)
    return magpy.stats(compiled)


@pytest.mark.parametrize("use", SERVED, ids=lambda f: f.__name__)
def test_two_captures_serve_all_sizes(use):
    stats = run(use, arrays([4, 5, 6, 7, 9, 5, 4, 12, 31, 6]))
    assert stats.captures <= 3
    assert stats.hits >= 14


@pytest.mark.parametrize("use", [*SERVED, *RIGHT], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_any_sizes_give_what_eager_gives(use, dynamic):
    run(use, arrays([4, 5, 1, 0, 6, 3, 2, 1, 8, 4, 0, 5]), dynamic)


@pytest.mark.parametrize("use", [*SERVED, *RIGHT], ids=lambda f: f.__name__)
def test_arrays_that_lie_otherwise_give_what_eager_gives(use):
    rows = arrays([4, 5, 6, 7])
    more = [
        rows[0][::-1],
        np.asfortranarray(rows[1]),
        rows[2][::2],
        rows[3].astype(np.float32),
        np.arange(20).reshape(5, 4),
        rows[1].copy()[1:],
        np.lib.stride_tricks.as_strided(rows[0], (3, 4), (0, 8)),
        rows[2],
    ]
    run(use, [*rows, *more])
    run(use, [*more, *rows])


def test_arrays_of_other_numbers_of_dimensions():
    def f(rows):
        return torch.from_numpy(rows).float() * 2, rows.shape, rows.ndim

    draw = np.random.default_rng(0)
    shapes = [(3, 4), (4, 4), (5,), (6,), (2, 3, 4), (3, 3, 4), (), (7, 4), (8, 5)]
    run(f, [draw.normal(size=s) for s in shapes])


def test_several_arrays_whose_sizes_agree_or_not():
    def f(a, b):
        return torch.from_numpy(a + b).float() @ WEIGHT, len(a) == len(b)

    compiled = magpy.compile(f, backend="eager")
    for n, m in [(4, 4), (5, 5), (6, 6), (4, 1), (1, 5), (3, 3), (7, 7), (2, 3), (8, 8)]:
        a, b = np.ones((n, 4)) * n, np.ones((m, 4)) / 2

        def result(f, a=a, b=b):
            try:
                return [shown(v) for v in f(a, b)]
            except ValueError as e:
                return str(e)

        assert result(compiled) == result(f)


def test_an_array_that_the_call_writes_to_is_written_once():
    def f(rows):
        y = torch.from_numpy(rows).float() @ WEIGHT
        rows[0] += 1
        return y

    compiled = magpy.compile(f, backend="eager")
    for n in (4, 5, 6, 5, 4, 7):
        a, b = np.ones((n, 4)), np.ones((n, 4))
        assert torch.equal(compiled(a), f(b))
        assert np.array_equal(a, b)


def test_a_tensor_of_other_sizes_becomes_an_array():
    def f(x):
        y = (x @ WEIGHT).numpy()
        return y * 2, y.shape, len(y)

    compiled = magpy.compile(f, backend="eager")
    for n in (4, 5, 6, 3, 1, 0, 8, 2):
        x = torch.linspace(0, 1, 4 * n).reshape(n, 4)
        assert list(map(shown, compiled(x))) == list(map(shown, f(x)))
    assert magpy.stats(compiled).hits >= 4
