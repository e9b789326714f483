"""What a backward pass takes is what eager saves for it, where a tensor is written to meanwhile.

MoCo's queue, memory banks, statistics that a layer updates: what was computed of them, a copy above
all, was saved before the write. torch.compile's gradients are those of the new values.
"""

import pytest
import torch
from torch import nn

import magpy


def clone(t):
    return t.clone()


def detached(t):
    return t.clone().detach()


def sine(t):
    return t.sin()


def twice(t):
    return t * 2


def joined(t):
    return torch.cat([t])


def copied(t):
    return torch.empty_like(t).copy_(t)


def part(t):
    return t[:, 0:4].clone()


def normalized(t):
    return nn.functional.normalize(t, dim=0)


def fixed(queue, at):
    queue[:, 0:2] = 100.0


def at_a_pointer(queue, at):
    i = int(at)
    queue[:, i : i + 2] = 100.0
    at[0] = (i + 2) % 4


def whole(queue, at):
    queue.copy_(torch.full((2, 4), 100.0))


def scaled(queue, at):
    queue.mul_(2.0)


def matmul(q, kept):
    return q @ kept


def product(q, kept):
    return q[0, :2, None] * kept


def gradients(call, queue, at):
    found = []
    for i in range(3):
        with torch.no_grad():
            queue.copy_(torch.arange(8.0).reshape(2, 4))
            at.zero_()
        q = torch.full((3, 2), 1.0 + i, requires_grad=True)
        call(q).sum().backward()
        found += [q.grad, queue.clone(), at.clone()]
    return found


KEEPS = [clone, detached, sine, twice, joined, copied, part, normalized]
WRITES = [fixed, at_a_pointer, whole, scaled]
USES = [matmul, product]
# TorchInductor is slow: each keep, each write and each use once.
CASES = [("aot_eager", k, w, u) for k in KEEPS for w in WRITES for u in USES]
CASES += [("inductor", k, WRITES[i % 4], USES[i // 4]) for i, k in enumerate(KEEPS)]


@pytest.mark.parametrize(
    ("backend", "keep", "write", "use"), CASES, ids=lambda v: getattr(v, "__name__", v)
)
def test_what_the_call_writes_to_afterwards(backend, keep, write, use):
    def world():
        queue, at = torch.arange(8.0).reshape(2, 4), torch.zeros(1, dtype=torch.long)

        def f(q):
            result = use(q, keep(queue))
            with torch.no_grad():
                write(queue, at)
            return result

        return f, queue, at

    f, *state = world()
    expected = gradients(f, *state)
    f, *state = world()
    for a, b in zip(gradients(magpy.compile(f, backend=backend), *state), expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("use", [matmul, product], ids=lambda f: f.__name__)
def test_a_copy_of_what_the_program_writes_to_before_the_pass(use, backend):
    queue = torch.arange(8.0).reshape(2, 4)

    def f(q):
        return use(q, queue.clone())

    found = []
    for call in (f, magpy.compile(f, backend=backend)):
        for i in range(3):
            queue.copy_(torch.arange(8.0).reshape(2, 4))
            q = torch.full((3, 2), 1.0 + i, requires_grad=True)
            result = call(q)
            queue[:, 1:] = 100.0
            result.sum().backward()
            found.append(q.grad)
    for a, b in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(a, b)


def test_what_nobody_writes_to_is_not_kept():
    """A compiler's backward pass computes activations again where that is cheaper."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.ReLU(inplace=True), nn.Linear(4, 2))
    compiled = magpy.compile(model, backend=backend)
    for _ in range(3):
        compiled(torch.randn(3, 4)).sum().backward()
    assert graphs
    assert not any("kept" in str(n.target) for gm in graphs for n in gm.graph.nodes)
