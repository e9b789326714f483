"""The caches on disk."""

import os
import subprocess
import sys

import pytest
import torch

import magpy

PROGRAM = """
import torch, magpy
from torch._dynamo.utils import counters

def f(x, w):
    return torch.relu(x @ w).sum(1)

c = magpy.compile(f)
x, w = torch.ones(3, 4), torch.ones(4, 5)
for _ in range(2):
    assert torch.equal(c(x, w), f(x, w))
assert magpy.stats(c).hits == 1
found = counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"]
print(*found)
"""


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    return tmp_path / "inductor"


def run(text, **environment):
    path = os.pathsep.join([p for p in sys.path if p] + [os.getcwd()])
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_a_second_process_starts_warm(fresh):
    assert run(PROGRAM) == "0 0"
    found = magpy.cache.info()
    assert found.graphs.path == fresh / "fxgraph"
    assert found.code.path == fresh
    for part in (found.graphs, found.code):
        assert part.files > 0
        assert part.bytes > part.files
    graphs, autograd = map(int, run(PROGRAM).split())
    assert graphs + autograd > 0
    assert magpy.cache.info().graphs.files == found.graphs.files
    # Autograd's cache left out, the graph that it makes is found.
    assert run(PROGRAM, TORCHINDUCTOR_AUTOGRAD_CACHE="0") == "1 0"
    assert magpy.cache.clear() >= found.bytes
    assert magpy.cache.info().bytes == 0
    assert run(PROGRAM) == "0 0"


@pytest.mark.slow
def test_compiling_after_clear(fresh):
    def f(x):
        return torch.sin(x) + 1

    c = magpy.compile(f)
    x = torch.ones(3)
    c(x)
    assert magpy.cache.info().bytes > 0
    magpy.cache.clear()
    assert torch.equal(c(x), f(x))
    assert magpy.stats(c).hits == 1
    d = magpy.compile(lambda x: torch.cos(x) * 3)
    d(x)
    d(x)
    assert magpy.stats(d).hits == 1
    assert magpy.stats(d).reasons == []


def test_only_caches_are_counted_and_removed(fresh, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    fresh.mkdir()
    for name in ("fxgraph", "aotautograd", "c4", "triton", "mine"):
        (fresh / name).mkdir()
        (fresh / name / "file").write_bytes(b"12345")
    (fresh / "zz").symlink_to(outside)
    (fresh / "notes.txt").write_text("mine")
    found = magpy.cache.info()
    assert [found.graphs.bytes, found.autograd.bytes, found.code.bytes, found.triton.bytes] == [
        5
    ] * 4
    assert found.bytes == 20
    assert magpy.cache.clear() == 20
    assert sorted(p.name for p in fresh.iterdir()) == ["mine", "notes.txt", "zz"]
    assert (outside / "kept").read_text() == "kept"
    elsewhere = tmp_path / "triton"
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"123")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(elsewhere))
    assert magpy.cache.info().triton == magpy.cache.Part(elsewhere, 3, 1)


def test_caches_that_do_not_exist_yet(fresh):
    assert magpy.cache.info().bytes == 0
    assert magpy.cache.clear() == 0
