"""Functional collectives within graphs that TorchInductor compiles: what follows them waits.

In a process of its own: code that reads what no memory stands behind ends it.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import magpy

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
W = dist.group.WORLD


def of_two(x):
    y = funcol.all_reduce(x, "sum", W)
    return y, y * 2 + 1, funcol.wait_tensor(y) - 1


def differentiated(x):
    return funcol.all_gather_tensor_autograd(x * 2, 0, W).sin() + 1


programs = {
    "all_to_all_single": lambda x: funcol.all_to_all_single(x, None, None, W) + 1,
    "all_reduce_coalesced": lambda x: [
        t + 1 for t in funcol.all_reduce_coalesced([x, x * 2], "max", W)
    ],
    "all_gather_coalesced": lambda x: [
        t * 2 for t in funcol.all_gather_into_tensor_coalesced([x, x + 1], W)
    ],
    "all_reduce": lambda x: funcol.all_reduce(x, "sum", W) + 1,
    "all_gather": lambda x: funcol.all_gather_tensor(x, 0, W) + 1,
    "reduce_scatter": lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, W) + 1,
    "broadcast": lambda x: funcol.broadcast(x, 0, W) + 1,
    "given_back": lambda x: funcol.all_reduce(x, "sum", W),
    "of_two": of_two,
    "differentiated": differentiated,
}
for name, f in programs.items():
    compiled = magpy.compile(f, backend=sys.argv[1])
    for i in range(4):
        x, y = (torch.full((4, 8), i + 0.5, requires_grad=name == "differentiated") for _ in "ab")
        got, wanted = compiled(x), f(y)
        if name == "differentiated":
            got.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
        if not isinstance(got, (list, tuple)):
            got, wanted = [got], [wanted]
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a * 1, b * 1)
    stats = magpy.stats(compiled)
    assert stats.captures == 1 and stats.hits >= 2, (name, stats)
    print("right:", name)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_follows_a_collective_waits_for_it(backend):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, backend],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("right:") == 10
