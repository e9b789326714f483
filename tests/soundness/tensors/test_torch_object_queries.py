"""What objects of torch say in one call is not taken for what they say in the next."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import torch

import magpy


class Tagged(torch.Tensor):
    __slots__ = ("tag",)


def _tagged(tag: Any) -> Any:
    t = torch.arange(4.0).as_subclass(Tagged)
    t.tag = tag
    return t


def test_slots_of_a_subclass_of_tensors_are_guarded() -> None:
    def f(v: Any) -> Any:
        plain = v.as_subclass(torch.Tensor)
        return v.tag, plain + 1 if v.tag == 1 else plain - 1

    compiled = magpy.compile(f, backend="eager")
    for tag in (1, 1, 2, "x", 1, 2):
        t = _tagged(tag)
        said, result = compiled(t)
        assert said == tag
        assert torch.equal(result, f(t)[1])
    assert magpy.stats(compiled).hits > 0


def test_the_state_of_a_generator_is_not_what_it_was() -> None:
    def f(g: Any, x: Any) -> Any:
        before = sum(g.get_state().tolist())
        way = 1 if g.get_state().long().sum() % 2 else 0
        return before, way, torch.rand(700, generator=g)

    worlds = []
    for wrap in (lambda f: f, lambda f: magpy.compile(f, backend="eager")):
        g, call = torch.Generator().manual_seed(0), wrap(f)
        seen = [call(g, torch.ones(2)) for _ in range(8)]
        worlds.append([(a, b, c.tolist()) for a, b, c in seen])
    assert worlds[0] == worlds[1]


_DTENSORS = """
import tempfile, torch, magpy, torch.distributed as dist
dist.init_process_group(
    "gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, DTensor
meshes = [init_device_mesh("cpu", (1,)), init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))]
t = torch.arange(8.0).view(4, 2)
given = [distribute_tensor(t, meshes[0], [p]) for p in (Shard(0), Replicate(), Shard(1))]
given += [DTensor.from_local(t, meshes[0], [Partial()]), distribute_tensor(t, meshes[1])]
programs = {
    "decides": lambda d: d.to_local() * 2 if d.placements[0].is_shard() else d.to_local() * 3,
    "says": lambda d: (d.placements, d.device_mesh.ndim, d.device_mesh.mesh_dim_names),
    "result": lambda d: (d * 2).placements,
    "equal": lambda d: d.placements == (Replicate(),),
}
for name, f in programs.items():
    c = magpy.compile(f, backend="eager")
    for d in given * 2:
        a, b = c(d), f(d)
        same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        assert same, (name, d.placements, a, b)
    print(name, magpy.stats(c).captures, magpy.stats(c).hits)
"""


def test_how_a_dtensor_lies_is_guarded() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DTENSORS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
