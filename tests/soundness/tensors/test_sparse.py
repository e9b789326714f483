"""Sparse and quantized tensors: how many elements they have is data, and no size tells of it."""

import pytest
import torch
import torch.nn.functional as F

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

W = torch.nn.Parameter(torch.zeros(4, 1))


def coo(*i):
    return torch.sparse_coo_tensor([list(i)], torch.ones(len(i)), (9,))


def csr(*v):
    return torch.tensor([list(v), [0, 0, 1, 1]]).float().to_sparse_csr()


def bsr(*block):
    return torch.ones(4, 4).to_sparse_bsr(block)


def of_gradient(i):
    W.grad = None
    F.embedding(i, W, sparse=True).sum().backward()
    return W.grad.coalesce()._indices().shape


def of_result(i):
    (grad,) = torch.autograd.grad(F.embedding(i, W, sparse=True).sum(), W)
    return grad.coalesce()._values().shape


def scheme(x):
    return "tensor" if x.qscheme() == torch.per_tensor_affine else "channel"


NUMBERS = [coo(1, 2), coo(1, 2, 3), coo(1)]
DIMS = [torch.ones(2, 3).to_sparse(), torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (2, 3))]
LOOKED_UP = [torch.tensor([1, 1]), torch.tensor([1, 2])]
QUANTIZED = [
    torch.quantize_per_tensor(torch.ones(2, 2), 1.0, 0, torch.qint8),
    torch.quantize_per_channel(
        torch.ones(2, 2), torch.ones(2), torch.zeros(2).long(), 0, torch.qint8
    ),
]
PROGRAMS = {
    "branch": (lambda x: "many" if x._values().numel() > 2 else "few", NUMBERS),
    "loop": (lambda x: [v * 2 for v in x._values()], NUMBERS),
    "size": (lambda x: torch.zeros(x._values().shape[0]), NUMBERS),
    "lengths": (lambda x: (len(x._values()), x._indices().shape), NUMBERS),
    "coalesced": (lambda x: x.coalesce().values().shape, [coo(1, 2), coo(1, 1), coo(1, 2, 3)]),
    "sum": (lambda x: (x + x).coalesce().values().shape, NUMBERS),
    "product": (lambda x: torch.sparse.mm(x.unsqueeze(0), torch.ones(9, 2)), NUMBERS),
    "dims": (lambda x: (x.sparse_dim(), x.dense_dim()), DIMS),
    "dims of a result": (lambda x: ((x * 2).sparse_dim(), x._values() * 2), DIMS),
    "rows": (lambda x: x.values().shape, [csr(1, 0, 2, 0), csr(1, 1, 1, 1)]),
    "blocks": (lambda x: x.values().shape, [bsr(1, 4), bsr(2, 2)]),
    "size of indices": (
        lambda i: torch.zeros(torch.sparse_coo_tensor(i, torch.ones(2)).to_dense().shape[0]),
        [torch.tensor([[0, 1]]), torch.tensor([[0, 5]])],
    ),
    "gradient": (of_gradient, LOOKED_UP),
    "gradient asked for": (of_result, LOOKED_UP),
    "scheme": (scheme, QUANTIZED),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_are_those_of_this_call(name, backend):
    f, given = PROGRAMS[name]
    c = magpy.compile(f, backend=backend)
    for x in given * 3:
        assert_same(c(x), f(x))
    assert magpy.stats(c).hits >= len(given) or name == "scheme"


ADJACENCY = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])


class Convolution(torch.nn.Module):
    """A graph convolution, as Kipf and Welling's: a sparse matrix times a dense one."""

    def __init__(self, adjacency):
        super().__init__()
        torch.manual_seed(0)
        self.adjacency = adjacency
        self.first, self.second = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

    def forward(self, x):
        hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(x) * 2))
        return torch.log_softmax(torch.sparse.mm(self.adjacency, self.second(hidden)), dim=1)


def trained(adjacency):
    model = Convolution(adjacency)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, step


class Strided:
    """A compiler that takes no sparse tensors, as TorchInductor."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, inputs):
        assert all(t.layout is torch.strided for t in inputs if isinstance(t, torch.Tensor))
        self.graphs += 1
        return gm


LAYOUTS = {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_dense_beside_a_sparse_product_is_compiled(layout):
    model = Convolution(LAYOUTS[layout](ADJACENCY))
    backend = Strided()
    c, x = magpy.compile(model, backend=backend), torch.randn(3, 4)
    for _ in range(3):
        assert_same(c(x), model(x))
        c(x).sum().backward()
        of_compiled = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        assert_same(of_compiled, [p.grad for p in model.parameters()])
        model.zero_grad()
    assert backend.graphs == 3 and magpy.stats(c).share > 0.7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_steps_over_a_sparse_product(layout, backend):
    (a, step), (b, eager) = (trained(LAYOUTS[layout](ADJACENCY)) for _ in range(2))
    c = magpy.compile(step, backend=backend or Strided())
    y = torch.tensor([0, 1, 0])
    for i in range(6):
        x = torch.full((3, 4), 0.1 * i)
        assert_same(c(x, y), eager(x, y))
        assert_same(dict(a.named_parameters()), dict(b.named_parameters()))
    stats = magpy.stats(c)
    assert stats.hits >= 3 and stats.share > 0.3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_sparse_tensors_made_in_a_call_and_changed_ones(backend):
    values = torch.ones(2)
    outside = torch.sparse_coo_tensor([[0, 1], [1, 0]], values, (2, 2))

    def f(x, w):
        made = (x * 2).to_sparse()
        y = torch.sparse.mm(made, w + 1)
        values.add_(x[1, 1])  # what the sparse tensor consists of
        return torch.relu(y) * 3 + outside.to_dense(), torch.mm(outside, w) - 1

    c = magpy.compile(f, backend=backend or Strided())
    x, w = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(2, 2)
    for _ in range(4):
        with torch.no_grad():
            values.fill_(1.0)
            expected, after = f(x, w), values.clone()
            values.fill_(1.0)
            assert_same(c(x, w), expected)
            assert_same(values, after)
    assert magpy.stats(c).hits >= 2
