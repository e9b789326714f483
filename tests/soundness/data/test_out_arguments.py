"""Tensors that were there before, and that an operation of data gives other sizes."""

import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same
from tests.soundness.worlds import attempt, case, check_all

MADE = ("made", "long", "there", "argument", "attribute")


class Holder:
    """What holds a tensor."""


def target(where, x, a, holder):
    dtype = torch.long if a.dtype is torch.long else torch.float
    if where == "made":
        return torch.empty(0, dtype=dtype)
    if where == "there":
        return torch.empty(2, dtype=dtype)
    return a if where == "argument" else holder.t


OPERATIONS = {
    "nonzero": lambda x, o: torch.nonzero(x > 0, out=o),
    "masked_select": lambda x, o: torch.masked_select(x, x > 0, out=o),
    "add": lambda x, o: torch.add(x[x > 0], 1, out=o),
    "cat": lambda x, o: torch.cat([x[x > 0], x[x > 0]], out=o),
    "resize_": lambda x, o: o.resize_(int((x > 0).sum())).fill_(3),
    "resize_as_": lambda x, o: o.resize_as_(x[x > 0]).fill_(3),
    "set_": lambda x, o: o.set_(x[x > 0]),
    "data": lambda x, o: setattr(o, "data", x[x > 0]),
    "index_select": lambda x, o: torch.index_select(x, 0, (x > 0).nonzero()[:, 0], out=o),
    "sort": lambda x, o: torch.sort(x[x > 0], out=(o, torch.empty(0, dtype=torch.long))),
    "take": lambda x, o: torch.take(x, (x > 0).nonzero(), out=o),
    "arange": lambda x, o: torch.arange(int((x > 0).sum()), out=o),
    "unique": lambda x, o: torch.mul(torch.unique(x > 0), 2, out=o),
    "swap_tensors": lambda x, o: torch.utils.swap_tensors(o, x[x > 0]),
    "custom": lambda x, o: torch.ops.magpy_tests.nonzero_out(x, o),
}
USES = {
    "shape": lambda o: o.shape,
    "both": lambda o: (o, o.shape),
    "itself": lambda o: o,
    "sum": lambda o: o + 1,
    "length": len,
    "branch": lambda o: o * 2 if o.shape[0] > 2 else o - 1,
    "list": lambda o: list(o),
    "zeros": lambda o: torch.zeros(o.shape),
    "strides": lambda o: (o.reshape(-1), o.is_contiguous()),
}
DATA = [
    [1, -1, 1.0],
    [1, 1, 1.0],
    [-1, -1, -1.0],
    [1, -1, -1],
    [1, 1, -1],
    [1, 1, 1],
    [-1, -1, -1],
    [1, -1, 1],
]


@torch.library.custom_op("magpy_tests::nonzero_out", mutates_args=("o",))
def _nonzero_out(x: torch.Tensor, o: torch.Tensor) -> None:
    torch.nonzero(x > 0, out=o)


def seen(operation, where, use, wrap):
    """What a program shows after each call, and what was compiled."""
    dtype = torch.long if operation in ("nonzero", "arange", "custom") else torch.float
    holder = Holder()
    holder.t = torch.empty(0, dtype=dtype)
    operate, use = OPERATIONS[operation], USES[use]

    def f(x, a):
        o = target(where, x, a, holder)
        operate(x, o)
        return use(o)

    f = wrap(f)
    found = []
    for data in DATA:
        x, a = torch.tensor(data, dtype=torch.float), torch.empty(0, dtype=dtype)
        found.append((attempt(f, x, a), a.clone(), holder.t.clone()))
    return found, f


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_sizes_are_those_of_this_call(operation, backend):
    hits = 0
    compiled = backend != "eager"
    for where in MADE[:: 2 if compiled else 1]:
        for use in list(USES)[:: 4 if compiled else 1]:
            want, _ = seen(operation, where, use, lambda f: f)
            got, c = seen(operation, where, use, lambda f: magpy.compile(f, backend=backend))
            assert_same(got, want, f"{where} {use}")
            hits += magpy.stats(c).hits
    assert hits or operation in ("swap_tensors", "set_", "resize_"), "nothing was ever compiled"


CASES = []


@case(CASES)
def what_has_no_room_raises_as_ever(compile):
    flat = torch.arange(6.0)

    def of_argument(p):
        torch.add(1, flat, out=p)

    def of_view(p):
        q = p.view(-1)
        torch.mul(flat, 2, out=q)
        return q

    def after_a_change(p):
        flat.add_(1)
        torch.mul(flat, 2, out=p)

    for f in (of_argument, of_view, after_a_change):
        f = compile(f)
        t = torch.tensor([2.0])
        for _ in range(2):
            new = torch.tensor([2.0])
            yield attempt(f, new), new, flat
        t = torch.tensor([2.0])
        yield attempt(f, t.view(-1)), t
        t.numpy()  # ends that its memory grows
        yield attempt(f, t.view(-1)), t
        t = torch.tensor([2.0])
        t.numpy()
        # Torch gives it the size before it raises, and what lies beyond the memory is anything.
        yield attempt(f, t), t.shape, flat
        t = torch.tensor([2.0])
        t.numpy()
        yield attempt(f, t.view(-1)), t.shape, flat


test_given_as_out = check_all(CASES)
