"""Sizes and integers that follow from data: followed from the second capture on, never assumed."""

import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

LAYER = nn.Linear(4, 4)


def rows(x):
    (r,) = torch.where(x[:, 0] > 0)
    return r


def indexed(x):
    return LAYER(x[rows(x)])


def asked_whether_empty(x):
    r = rows(x)
    if r.numel() == 0:
        return x.sum()
    return LAYER(x[r]).sum()


def masked(x):
    y = x[x[:, 0] > 0]
    return y.sum() / y.shape[0]


def made_of_a_size(x):
    n = (x[:, 0] > 0).sum().item()
    return torch.zeros(n, 3) + n


def sliced(x):
    n = int((x[:, 0] > 0).sum())
    return x[:n], x[n:]


def two_sizes_that_must_agree(x):
    return x[rows(x)] + x[(x[:, 1] > 0).nonzero()[:, 0]]


def size_of_data_and_of_an_argument(x):
    return x[rows(x)] + x[: x.shape[0] // 2]


def rank_follows(x):
    y = x[x[:, 0] > 0].squeeze()
    return y.dim(), y


def padded(x):
    y = x[rows(x)]
    return F.pad(y, (0, 0, 0, x.shape[0] - len(y)))


def raises_for_many(x):
    r = rows(x)
    if len(r) > 4:
        raise ValueError(f"{len(r)} rows")
    return x[r]


def told(x):
    return f"{len(rows(x))} of {len(x)}"


def stored(x):
    r = rows(x)
    x[r] = len(r)
    return x


def lengths_of_a_batch(x):
    lengths = (x.abs() > 0.5).sum(1).tolist()
    return torch.stack([x[i, : n + 1].mean() for i, n in enumerate(lengths)]), max(lengths)


def split_by_lengths(x):
    lengths = (x > 0).sum(0).tolist()
    return [p.sum() for p in torch.arange(sum(lengths)).split(lengths)]


def list_of_data(x):
    return (x > 0).sum(0).tolist()


def resized_in_between(x):
    r = rows(x)
    n = len(r)
    r.resize_(3)
    (other,) = torch.where(x[:, 1] > 0)
    if len(other) > n:
        return other, n
    return n - len(other)


def turned_in_between(x):
    y = x[x[:, 0] > 0]
    n = len(y)
    y.t_()
    z = x[x[:, 1] > 0]
    return (z, n) if len(z) > n else n - len(z)


def laid_out_anew(x):
    y = x[x[:, 0] > 0].t()
    z = y.contiguous()
    z.add_(1)
    return y * 2


def dropped_out(x):
    torch.manual_seed(0)
    return F.dropout(x[x[:, 0] > 0], 0.5)


def differences(x):
    return torch.diff(x[x[:, 0] > 0], 1, 0)


def covariance(x):
    z = torch.cov(x[x[:, 0] > 0])
    return z.dim(), z


def pieces(x):
    return len(torch.unbind_copy(x[x[:, 0] > 0]))


def shares_memory_or_not(x):
    y = x[x[:, 0] > 0]
    z = y.t().reshape(-1)
    z.add_(10)
    return y if y.sum() > 15 else y * 2


def summed_to_size(x):
    return x[x[:, 0] > 0].sum_to_size(1, 4) + 1


def caught(x):
    total = torch.zeros(3, 4)
    try:
        total.add_(x[x[:, 0] > 0])
    except RuntimeError:
        return 0
    return total


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        best = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            (r,) = torch.where(best == i)
            if r.numel() == 0:
                continue
            out.index_add_(0, r, expert(x[r]))
        return out


torch.manual_seed(0)
PROGRAMS = [
    indexed,
    asked_whether_empty,
    masked,
    made_of_a_size,
    sliced,
    two_sizes_that_must_agree,
    size_of_data_and_of_an_argument,
    rank_follows,
    padded,
    raises_for_many,
    told,
    stored,
    lengths_of_a_batch,
    split_by_lengths,
    list_of_data,
    resized_in_between,
    turned_in_between,
    laid_out_anew,
    dropped_out,
    differences,
    covariance,
    pieces,
    shares_memory_or_not,
    summed_to_size,
    caught,
    Experts(),
]


def name_of(program):
    return getattr(program, "__name__", type(program).__name__)


def inputs():
    generator = torch.Generator().manual_seed(5)
    found = [torch.randn(8, 4, generator=generator) for _ in range(8)]
    found += [torch.randn(n, 4, generator=generator) for n in (9, 11, 12, 10, 8, 3)]
    found[2][:, 0] = -1  # none
    found[4][:, 0] = -1
    found[4][2, 0] = 1  # one
    found[5][:, 0] = 1  # all
    return found


def outcome(f, x):
    try:
        return f(x), x
    except Exception as error:
        return type(error), str(error), x


@pytest.mark.parametrize("first", [0, 2, 4])  # many, none, one
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_does_as_eager_whatever_the_sizes(program, backend, first):
    compiled = magpy.compile(program, backend=backend)
    found = inputs()
    for x in (*found[first:], *found[:first]):
        assert_same(outcome(compiled, x.clone()), outcome(program, x.clone()))
    assert not [r for r in magpy.stats(compiled).reasons if "magpy failed" in r]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "program", [indexed, asked_whether_empty, masked, made_of_a_size, padded, told], ids=name_of
)
def test_two_captures_serve_all_sizes_above_one(program, backend):
    compiled = magpy.compile(program, backend=backend)
    for n in (3, 5, 4, 7, 2, 6, 8):
        x = -torch.ones(8, 4)
        x[:n] = torch.rand(n, 4) + 0.5
        assert_same(outcome(compiled, x.clone()), outcome(program, x.clone()))
    stats = magpy.stats(compiled)
    # Python runs a graph whatever the sizes are in it: where nobody asks for one, one serves all.
    assert stats.captures == (1 if program is indexed and backend == "eager" else 2)
    assert stats.hits == 7 - stats.captures
    assert stats.segments[0] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [split_by_lengths, list_of_data], ids=name_of)
def test_two_captures_serve_all_lists_of_one_length(program, backend):
    compiled = magpy.compile(program, backend=backend)
    for seed in range(7):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed)) + 0.2
        assert_same(outcome(compiled, x.clone()), outcome(program, x.clone()))
    assert magpy.stats(compiled).captures == 2


def test_a_graph_is_compiled_for_all_sizes_at_once():
    graphs = []

    def backend(graph, inputs):
        graphs.append([tuple(t.shape) for t in inputs if isinstance(t, torch.Tensor)])
        return graph.forward

    compiled = magpy.compile(indexed, backend=backend)
    for n in (3, 5, 4, 7, 2, 6):
        x = -torch.ones(8, 4)
        x[:n] = 1.0
        assert torch.equal(compiled(x), indexed(x))
    assert len(graphs) == 1  # that of the second capture: the first was never run again
    assert any(isinstance(n, torch.SymInt) for shape in graphs[0] for n in shape)


def test_fixed_sizes_stay_fixed_if_that_is_asked_for():
    compiled = magpy.compile(made_of_a_size, backend="eager", dynamic=False)
    for n in (3, 5, 4, 3):
        x = -torch.ones(8, 4)
        x[:n] = 1.0
        assert torch.equal(compiled(x), made_of_a_size(x))
    assert magpy.stats(compiled).captures == 3
    assert magpy.stats(compiled).hits == 1


def test_they_vary_from_the_start_if_that_is_asked_for():
    compiled = magpy.compile(indexed, backend="eager", dynamic=True)
    for n in (3, 5, 4):
        x = -torch.ones(8, 4)
        x[:n] = 1.0
        assert torch.equal(compiled(x), indexed(x))
    assert magpy.stats(compiled).captures == 1


def test_gradients_pass_through_sizes_of_data():
    compiled = magpy.compile(indexed, backend="aot_eager")
    for n in (3, 5, 4, 7):
        x = -torch.ones(8, 4)
        x[:n] = torch.rand(n, 4) + 0.5
        given = [x.clone().requires_grad_() for _ in range(2)]
        for f, t in zip((compiled, indexed), given, strict=True):
            LAYER.zero_grad()
            f(t).square().sum().backward()
            t.weights = LAYER.weight.grad.clone()
        torch.testing.assert_close(given[0].grad, given[1].grad)
        torch.testing.assert_close(given[0].weights, given[1].weights)
    assert magpy.stats(compiled).hits == 2


@pytest.mark.parametrize("program", [resized_in_between, turned_in_between], ids=name_of)
def test_a_size_is_what_it_was_when_it_was_read(program):
    compiled = magpy.compile(program, backend="eager")
    for n, m in ((2, 5), (3, 6), (5, 4), (6, 5), (2, 3)):
        x = -torch.ones(8, 4)
        x[:n, 0] = x[:m, 1] = 1
        assert_same(outcome(compiled, x.clone()), outcome(program, x.clone()))


def _counted_statistics(norm):
    return lambda x: norm(x[x[:, 0] > 0]).sum().detach()


def _drew_too_many(_):
    def f(x):
        try:
            return torch.multinomial(x[x[:, 0] > 0][:, 1].abs() + 1, 3)
        except RuntimeError:
            return 0

    return f


def _drew_of_a_wrong_mask(_):
    def f(x):
        y = x[x[:, 0] > 0][None]
        try:
            return F.scaled_dot_product_attention(y, y, torch.ones(1, 5, 4), dropout_p=0.5)
        except RuntimeError:
            return 0

    return f


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [_counted_statistics, _drew_too_many, _drew_of_a_wrong_mask])
def test_what_raises_for_some_sizes_counts_and_draws_once(make, backend):
    worlds = []
    for compiled in (True, False):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(4)
        f = make(norm)
        if compiled:
            f = magpy.compile(f, backend=backend)
        said = []
        for n in (0, 5, 1, 3, 1, 5, 0, 2, 4, 5, 1, 8):
            x = torch.linspace(-1, 1, 32).reshape(8, 4).clone()
            x[:, 0] = -1
            x[:n, 0] = 1
            said.append((outcome(f, x), norm.running_mean.clone(), torch.rand(2)))
            said.append(int(norm.num_batches_tracked))
        worlds.append(said)
        if compiled:
            assert magpy.stats(f).hits >= 3  # those that raise run eagerly
    assert_same(*worlds)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_raises_for_some_sizes_of_an_argument_draws_once(backend):
    def f(p):
        noise = torch.rand(2)
        try:
            return torch.multinomial(p, 3), noise
        except RuntimeError:
            return 0, noise

    worlds = []
    for g in (magpy.compile(f, backend=backend), f):
        torch.manual_seed(0)
        worlds.append([outcome(g, torch.ones(n)) for n in (5, 6, 4, 2, 7, 2)])
    assert_same(*worlds)


def loaded(x, kept, fixed):
    kept.add_(1)
    m = x[x[:, 0] > 0]
    return m[fixed]


def selected(x, kept, fixed):
    kept.add_(1)
    return x[x[:, 0] > 0][:, 0].masked_select(fixed)


def found_at(x, kept, fixed):
    kept.add_(1)
    return torch.where(fixed, x[x[:, 0] > 0][:, 0], 0.0).nonzero()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [loaded, selected, found_at], ids=name_of)
def test_what_a_mask_asks_of_a_size_of_data_is_a_condition(program, backend):
    """Torch says that data decides the result before it asks whether the mask fits."""
    compiled = magpy.compile(program, backend=backend)
    fixed = torch.tensor([True, False, True])
    worlds = []
    for f in (compiled, program):
        kept, said = torch.zeros(()), []
        for n in (3, 3, 2, 5, 3, 4, 0, 1, 6, 3):
            x = -torch.ones(8, 4)
            x[:n] = torch.arange(1.0, 4 * n + 1).reshape(n, 4)
            try:
                said.append((f(x, kept, fixed), kept.clone()))
            except Exception as error:  # noqa: BLE001 - compared below
                at = [s.name for s in traceback.extract_tb(error.__traceback__)][1:]
                said.append((type(error), str(error), at, kept.clone()))
        worlds.append(said)
    assert_same(*worlds)
    assert any(program.__name__ in s[2] for s in worlds[1] if len(s) == 4)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_a_mask_asks_of_a_size_of_an_argument_is_a_condition(backend):
    fixed = torch.tensor([True, False, True])

    def f(x, kept):
        kept.add_(1)
        return x[fixed]

    compiled = magpy.compile(f, backend=backend)
    worlds = []
    for g in (compiled, f):
        kept, said = torch.zeros(()), []
        for n in (3, 4, 5, 3, 2, 3):
            try:
                said.append((g(torch.arange(float(n)), kept), kept.clone()))
            except Exception as error:  # noqa: BLE001 - compared below
                at = [s.name for s in traceback.extract_tb(error.__traceback__)][1:]
                said.append((type(error), str(error), at, kept.clone()))
        worlds.append(said)
    assert_same(*worlds)


def levels(x, shapes):
    """Parts along a dimension that is not the first: their strides are those of the whole."""
    parts = x.split([h * w for h, w in shapes], dim=1)
    return [
        p.transpose(1, 2).reshape(len(x), 8, h, w) for p, (h, w) in zip(parts, shapes, strict=True)
    ]


def bounds(x, shapes):
    parts = x.split(shapes.prod(1).tolist(), dim=1)
    # Kernels choose the stride of a dimension of size 1, which is not followed.
    asked = [p.stride(0) * p.shape[1] + p.is_contiguous() for p in parts if len(p) > 1]
    return asked, [p + 1 for p in parts]


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph.forward])
@pytest.mark.parametrize("f", [levels, bounds])
def test_parts_of_a_tensor_of_other_sizes_have_other_strides(f, backend, batch):
    compiled = magpy.compile(f, backend=backend)
    for i in range(12):
        shapes = torch.tensor([[4 + i, 5], [3, 6 + i]])
        x = torch.randn(batch, int(shapes.prod(1).sum()), 8)
        for given in (x, x.transpose(1, 2).contiguous().transpose(1, 2)) if i in (7, 11) else (x,):
            assert_same(compiled(given, shapes), f(given, shapes))
    stats = magpy.stats(compiled)
    assert stats.captures <= 4 and stats.hits >= 9, stats
