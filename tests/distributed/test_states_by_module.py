"""What torch keeps of modules by their identity holds for the compiled ones, too."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import magpy


@pytest.fixture
def mesh():
    if dist.is_initialized():
        pytest.skip("another test has left a process group")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()
    # gloo's threads let go of Python's objects, for which the group waits with the GIL held.
    time.sleep(0.2)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def sharded(mesh):
    model = net()
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model):
    model(torch.ones(2, 4)).square().sum().backward()
    return [p.grad.full_tensor() for p in model.parameters()]


def test_blocks_that_are_compiled_after_all_is_sharded_are_no_roots(mesh):
    model = sharded(mesh)
    blocks = list(model)
    for i, block in enumerate(blocks):
        model[i] = magpy.compile(block, backend="eager")
    for got, wanted in zip(step(model), step(sharded(mesh)), strict=True):
        assert torch.equal(got, wanted)
    assert [block._get_fsdp_state()._is_root for block in blocks] == [False, False]
    model.set_requires_gradient_sync(False)
    step(model)


def test_blocks_that_are_compiled_before_the_root_is_sharded(mesh):
    model = net()
    for i in range(2):
        model[i] = magpy.compile(fully_shard(model[i], mesh=mesh), backend="eager")
    fully_shard(model, mesh=mesh)
    for got, wanted in zip(step(model), step(sharded(mesh)), strict=True):
        assert torch.equal(got, wanted)


def test_methods_of_a_sharded_module_that_is_compiled(mesh):
    compiled = magpy.compile(sharded(mesh), backend="eager")
    compiled.set_requires_gradient_sync(False)
    compiled.unshard()
    compiled.reshard()
    compiled.set_requires_gradient_sync(True)
    for got, wanted in zip(step(compiled), step(sharded(mesh)), strict=True):
        assert torch.equal(got, wanted)


def test_hooks_of_a_state_are_given_the_module_itself():
    model, given = net(), []

    def noting(module, *more):
        given.append(module)

    model.register_state_dict_pre_hook(noting)
    model.register_state_dict_post_hook(noting)
    model.register_load_state_dict_pre_hook(noting)
    model.register_load_state_dict_post_hook(noting)
    compiled = magpy.compile(model, backend="eager")
    wanted = model.state_dict()
    got = compiled.state_dict()
    assert list(got) == list(wanted)
    assert all(torch.equal(a, b) for a, b in zip(got.values(), wanted.values(), strict=True))
    compiled.load_state_dict({k: v + 1 for k, v in wanted.items()})
    assert len(given) == 6 and all(module is model for module in given)


def test_a_method_that_the_program_puts_around_that_of_a_compiled_module():
    compiled = magpy.compile(net(), backend="eager")
    before = compiled.state_dict
    compiled.state_dict = lambda *args, **kwargs: list(before(*args, **kwargs))
    assert compiled.state_dict() == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_state_of_the_program_s_own_class():
    class Own(nn.Linear):
        def state_dict(self, *args, **kwargs):
            return {**super().state_dict(*args, **kwargs), "of": type(self).__name__}

    compiled = magpy.compile(Own(2, 2), backend="eager")
    outer = nn.Sequential(compiled)
    assert compiled.state_dict()["of"] == "Own"
    assert sorted(outer.state_dict()) == ["0.bias", "0.weight"]
