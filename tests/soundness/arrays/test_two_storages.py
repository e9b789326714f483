"""Tensors whose storages are several and whose memory is one: arrays, DLPack, buffers."""

import numpy as np
import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same


def of_array():
    a = np.arange(4.0)
    return torch.from_numpy(a), torch.from_numpy(a)


def of_dlpack():
    t = torch.arange(4.0)
    return t, torch.from_dlpack(t)


def of_buffer():
    b = bytearray(16)
    return torch.frombuffer(b, dtype=torch.float32), torch.frombuffer(b, dtype=torch.float32)


def part_of_tensor():
    t = torch.arange(4.0)
    return t, torch.from_numpy(t.numpy())[1:3]


def part_of_array():
    a = np.arange(4.0)
    return torch.from_numpy(a[1:]), torch.from_numpy(a)


def apart():
    return torch.arange(4.0), torch.arange(4.0)


KINDS = [of_array, of_dlpack, of_buffer, part_of_tensor, part_of_array, apart]
USES = """
y.add_(1); r = x.sum().item()
y.add_(1); r = x * 2
r = x.sum().item(); y.mul_(2); r = (r, x.sum().item())
y.add_(1); r = x.numpy().sum()
a = x.numpy(); y.add_(1); r = float(a.sum())
z = x[1:3]; y.mul_(3); r = (z * 2, z.sum().item())
y.add_(1); r = (x, y)
x.add_(1); r = [v.item() for v in y]
y.zero_(); r = 1 if x.sum() > 1 else 2
torch.add(x, 1, out=x); r = y + 1
r = y.tolist(); x.add_(1); r = (r, y.tolist())
y.add_(1); r = x.clone(); x.mul_(2); r = (r, y.clone())
"""


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("use", USES.strip().splitlines())
def test_a_write_to_one_is_a_write_to_the_other(use, backend):
    names = {"torch": torch, "np": np}
    body = use.replace("; ", "\n    ")
    exec(f"def f(x, y):\n    {body}\n    return r", names)
    for kind in KINDS:
        c = magpy.compile(names["f"], backend=backend)
        for make in (kind, kind, kind, kind, apart):
            eager, compiled = make(), make()
            want, got = names["f"](*eager), c(*compiled)
            assert_same((got, compiled), (want, eager), kind.__name__)
        assert magpy.stats(c).hits >= 2


def test_an_operation_asks_which_storage_shows_the_memory():
    """Where two do, torch cannot tell that elements of one are written and read at once."""

    def calls(compile):
        seen = []

        def f(x, y):
            seen.append("before")
            x.add_(y.t())
            seen.append("after")
            return x

        c = compile(f)
        array = np.ones((2, 2), dtype=np.float32)
        one = torch.ones(2, 2)
        for of_one in (False, False, True, True, False):
            x = one if of_one else torch.from_numpy(array)
            y = one.data if of_one else torch.from_numpy(array)
            if of_one:
                with pytest.raises(RuntimeError, match="some elements of the input tensor"):
                    c(x, y)
            else:
                c(x, y)
        return seen, array, one

    compiled = calls(lambda f: magpy.compile(f, backend="eager"))
    assert_same(compiled, calls(lambda f: f))
