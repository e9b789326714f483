"""Sparse and quantized tensors: how many elements they have is data, and no size tells of it."""

import pytest
import torch
import torch.nn.functional as F

import magpy
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
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_are_those_of_this_call(name, backend):
    f, given = PROGRAMS[name]
    c = magpy.compile(f, backend=backend)
    for x in given * 3:
        assert_same(c(x), f(x))
    assert magpy.stats(c).hits >= len(given) or name == "scheme"
