"""Training programs of two processes, each a world of its own: models, optimizers, collectives.

Owns the programs only; tests/distributed/worker.py runs them eagerly and compiled.  A case is given
`compile` and returns `step(i)`, which makes the i-th step and returns what it computed, and
`state()`, which returns all that the step may have changed.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as dist_functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel as DDP

Compile = Callable[[Any], Any]
Step = Callable[[int], Any]
State = Callable[[], list[Any]]
CASES: dict[str, Callable[[Compile], tuple[Step, State]]] = {}


def case(f: Callable[[Compile], tuple[Step, State]]) -> Callable[[Compile], tuple[Step, State]]:
    """Registers a case under its name."""
    CASES[f.__name__] = f
    return f


class Net(nn.Module):
    """Two blocks with a normalization that has buffers."""

    def __init__(self) -> None:
        """Made under the seed of the case."""
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        """Of a batch of 8 numbers, 4 numbers each."""
        for block in self.blocks:
            x = torch.relu(block(x)) + x
        return self.head(self.norm(x))


class Mlp(nn.Module):
    """What tensor parallelism is explained with."""

    def __init__(self) -> None:
        """Made under the seed of the case."""
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        """Of (batch, 8) the same."""
        return self.down(torch.relu(self.up(self.norm(x))))


class Ways(nn.Module):
    """Uses one of its layers in every second step only."""

    def __init__(self) -> None:
        """Made under the seed of the case."""
        super().__init__()
        self.always, self.sometimes = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Any, both: bool) -> Any:
        """Of a batch of 8 numbers, 4 numbers each."""
        y = self.always(x)
        return y + self.sometimes(x) if both else y


def batch(i: int, size: int = 4) -> Any:
    """The batch of this rank for a step."""
    generator = torch.Generator().manual_seed(100 * i + dist.get_rank())
    return torch.randn(size, 8, generator=generator)


def local(t: Any) -> Any:
    """What this rank has of a tensor."""
    return t.to_local() if isinstance(t, DTensor) else t


def state_of(module: nn.Module, optimizer: Any = None) -> State:
    """Parameters, gradients, buffers and the optimizer's state."""

    def state() -> list[Any]:
        found: list[Any] = []
        for p in module.parameters():
            found += [p, p.grad]
        found += list(module.buffers())
        if optimizer is not None:
            for held in optimizer.state.values():
                found += [v for v in held.values() if isinstance(v, torch.Tensor)]
        return [local(t) for t in found]

    return state


def trained(model: Any, of: nn.Module | None = None, **how: Any) -> tuple[Step, State]:
    """A plain training loop around a model, which may be compiled."""
    module = model if of is None else of
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01, **how)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        loss = local(model(batch(i))).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, state_of(module, optimizer)


def made(module: Any, **options: Any) -> Any:
    """A module in DistributedDataParallel."""
    return DDP(module, **options)


# ---------------------------------------------------------------- DistributedDataParallel


@case
def ddp_outside(compile: Compile) -> tuple[Step, State]:
    """compile(DDP(m))."""
    model = made(Net())
    return trained(compile(model), model)


@case
def ddp_inside(compile: Compile) -> tuple[Step, State]:
    """DDP(compile(m))."""
    return trained(made(compile(Net())))


@case
def ddp_both(compile: Compile) -> tuple[Step, State]:
    """compile(DDP(compile(m)))."""
    model = made(compile(Net()))
    return trained(compile(model), model)


def _whole_step(model: Any, compile: Compile) -> tuple[Step, State]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def update(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = compile(update)
    return lambda i: compiled(batch(i)), state_of(model, optimizer)


@case
def ddp_whole_step(compile: Compile) -> tuple[Step, State]:
    """The step is compiled, and the wrapper in it is not."""
    return _whole_step(made(Net()), compile)


@case
def ddp_whole_step_around_a_compiled_module(compile: Compile) -> tuple[Step, State]:
    """Both are."""
    return _whole_step(compile(made(Net())), compile)


@case
def ddp_forward_function(compile: Compile) -> tuple[Step, State]:
    """A function that calls the wrapper is compiled: the loss."""
    model = made(Net())
    loss_of = compile(lambda x: model(x).pow(2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        loss = loss_of(batch(i))
        loss.backward()
        optimizer.step()
        return loss

    return step, state_of(model, optimizer)


def _accumulated(model: Any, of: Any) -> tuple[Step, State]:
    optimizer = torch.optim.SGD(of.parameters(), lr=0.05)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        with model.no_sync():
            first = model(batch(2 * i)).pow(2).mean()
            first.backward()
        second = model(batch(2 * i + 1)).pow(2).mean()
        second.backward()
        optimizer.step()
        return first, second

    return step, state_of(of, optimizer)


@case
def ddp_no_sync_outside(compile: Compile) -> tuple[Step, State]:
    """Gradients are accumulated, and the ranks' are joined in every second backward pass."""
    model = made(Net())
    return _accumulated(compile(model), model)


@case
def ddp_no_sync_inside(compile: Compile) -> tuple[Step, State]:
    """Likewise."""
    model = made(compile(Net()))
    return _accumulated(model, model)


@case
def ddp_static_graph(compile: Compile) -> tuple[Step, State]:
    """static_graph=True."""
    model = made(Net(), static_graph=True)
    return trained(compile(model), model)


@case
def ddp_bucket_views(compile: Compile) -> tuple[Step, State]:
    """Gradients are views of the buckets, of which there are many."""
    model = made(Net(), gradient_as_bucket_view=True, bucket_cap_mb=0.0001)
    return trained(compile(model), model)


@case
def ddp_without_buffers(compile: Compile) -> tuple[Step, State]:
    """broadcast_buffers=False."""
    model = made(Net(), broadcast_buffers=False)
    return trained(compile(model), model)


def _unused(model: Any, of: Any) -> tuple[Step, State]:
    optimizer = torch.optim.SGD(of.parameters(), lr=0.05)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        loss = model(batch(i), i % 2 == 0).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, state_of(of, optimizer)


@case
def ddp_unused_parameters_outside(compile: Compile) -> tuple[Step, State]:
    """find_unused_parameters=True, and some are, in every second step."""
    model = made(Ways(), find_unused_parameters=True)
    return _unused(compile(model), model)


@case
def ddp_unused_parameters_inside(compile: Compile) -> tuple[Step, State]:
    """Likewise."""
    model = made(compile(Ways()), find_unused_parameters=True)
    return _unused(model, model)


@case
def ddp_communication_hook(compile: Compile) -> tuple[Step, State]:
    """A hook of torch's own."""
    model = made(Net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return trained(compile(model), model)


@case
def ddp_hook_of_the_program(compile: Compile) -> tuple[Step, State]:
    """A hook of the program, set through the compiled module."""
    model = made(Net())
    compiled = compile(model)

    def hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        half = bucket.buffer().div_(2 * dist.get_world_size())
        return dist.all_reduce(half, async_op=True).get_future().then(lambda f: f.value()[0])

    compiled.register_comm_hook(None, hook)
    return trained(compiled, model)


@case
def ddp_uneven_inputs(compile: Compile) -> tuple[Step, State]:
    """One rank has more batches than the other."""
    model = made(Net(), broadcast_buffers=False)
    compiled = compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(i: int) -> Any:
        loss = torch.zeros(())
        with Join([model]):
            for k in range(1 + dist.get_rank()):
                optimizer.zero_grad()
                loss = compiled(batch(2 * i + k)).pow(2).mean()
                loss.backward()
                optimizer.step()
        return loss

    return step, state_of(model, optimizer)


# ---------------------------------------------------------------- sharded parameters


def _mesh() -> Any:
    return init_device_mesh("cpu", (2,))


class Wide(nn.Module):
    """Blocks that are sharded one by one."""

    def __init__(self) -> None:
        """Made under the seed of the case."""
        super().__init__()
        self.blocks = nn.ModuleList(Mlp() for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Of (batch, 8) the same."""
        for block in self.blocks:
            x = x + block(x)
        return x


@case
def fsdp2_outside(compile: Compile) -> tuple[Step, State]:
    """compile(fully_shard(m))."""
    model = Wide()
    fully_shard(model, mesh=_mesh())
    return trained(compile(model), model)


@case
def fsdp2_inside(compile: Compile) -> tuple[Step, State]:
    """Compiled blocks, each sharded."""
    model = Wide()
    for k, block in enumerate(model.blocks):
        model.blocks[k] = compile(block)
        fully_shard(model.blocks[k], mesh=_mesh())
    fully_shard(model, mesh=_mesh())
    return trained(model)


@case
def fsdp2_blocks(compile: Compile) -> tuple[Step, State]:
    """Sharded blocks, of which each `forward` is compiled, as `module.compile()` does."""
    model = Wide()
    for block in model.blocks:
        fully_shard(block, mesh=_mesh())
        block.forward = compile(block.forward)
    fully_shard(model, mesh=_mesh())
    return trained(model)


@case
def fsdp2_mixed_precision(compile: Compile) -> tuple[Step, State]:
    """The forward pass is in bfloat16."""
    model = Wide()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=_mesh(), mp_policy=policy)
        block.forward = compile(block.forward)
    fully_shard(model, mesh=_mesh(), mp_policy=policy)
    return trained(model)


@case
def fsdp1_outside(compile: Compile) -> tuple[Step, State]:
    """compile(FullyShardedDataParallel(m))."""
    model = FullyShardedDataParallel(Wide(), device_id=torch.device("cpu"), use_orig_params=True)
    return trained(compile(model), model)


@case
def fsdp1_inside(compile: Compile) -> tuple[Step, State]:
    """FullyShardedDataParallel(compile(m))."""
    inner = compile(Wide())
    return trained(FullyShardedDataParallel(inner, device_id=torch.device("cpu")))


@case
def zero_optimizer(compile: Compile) -> tuple[Step, State]:
    """Each rank has a part of the optimizer's state."""
    model = made(compile(Net()))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )

    def step(i: int) -> Any:
        optimizer.zero_grad()
        loss = model(batch(i)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, state_of(model)


# ---------------------------------------------------------------- DTensor and tensor parallelism


@case
def tensor_parallel(compile: Compile) -> tuple[Step, State]:
    """parallelize_module by columns and rows."""
    model = parallelize_module(Mlp(), _mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained(compile(model), model)


@case
def sequence_parallel(compile: Compile) -> tuple[Step, State]:
    """And the normalization by sequence."""
    model = parallelize_module(
        Mlp(),
        _mesh(),
        {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        },
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    compiled = compile(model)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        loss = local(compiled(batch(i).view(1, 4, 8))).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, state_of(model, optimizer)


def _computed(f: Callable[..., Any], compile: Compile) -> tuple[Step, State]:
    """A function of this rank's batch."""
    compiled = compile(f)
    return lambda i: compiled(batch(i)), list


@case
def dtensor_operations(compile: Compile) -> tuple[Step, State]:
    """A function of DTensors."""
    mesh = _mesh()
    weight = distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)])

    def f(x: Any) -> Any:
        return (DTensor.from_local(x, mesh, [Replicate()]) @ weight.t()).relu().to_local()

    return _computed(f, compile)


@case
def dtensor_redistributed(compile: Compile) -> tuple[Step, State]:
    """With placements that the call makes."""
    mesh = _mesh()

    def f(x: Any) -> Any:
        d = DTensor.from_local(x, mesh, [Shard(0)])
        return d.redistribute(placements=[Replicate()]).to_local().sum(), d.full_tensor()

    return _computed(f, compile)


# ---------------------------------------------------------------- pipelines


def _pipeline(compile: Compile, schedule_of: Any) -> tuple[Step, State]:
    rank = dist.get_rank()
    torch.manual_seed(rank)
    module = Mlp()
    stage = PipelineStage(compile(module), rank, 2, torch.device("cpu"))
    schedule = schedule_of(stage, n_microbatches=2, loss_fn=lambda y, t: (y - t).pow(2).mean())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)

    def step(i: int) -> Any:
        optimizer.zero_grad()
        losses: list[Any] = []
        if rank == 0:
            schedule.step(batch(i))
        else:
            schedule.step(target=torch.ones(4, 8), losses=losses)
        optimizer.step()
        return losses

    return step, state_of(module, optimizer)


@case
def pipeline_1f1b(compile: Compile) -> tuple[Step, State]:
    """Two stages, each of which is compiled."""
    return _pipeline(compile, Schedule1F1B)


@case
def pipeline_gpipe(compile: Compile) -> tuple[Step, State]:
    """Likewise."""
    return _pipeline(compile, ScheduleGPipe)


# ---------------------------------------------------------------- collectives


@case
def functional_all_reduce(compile: Compile) -> tuple[Step, State]:
    """The collectives that torch.compile's graphs hold."""
    return _computed(lambda x: funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1, compile)


@case
def functional_all_gather(compile: Compile) -> tuple[Step, State]:
    """Likewise."""
    return _computed(
        lambda x: funcol.all_gather_tensor(x + 1, gather_dim=0, group=dist.group.WORLD) * 2, compile
    )


@case
def functional_reduce_scatter(compile: Compile) -> tuple[Step, State]:
    """Likewise."""
    return _computed(
        lambda x: funcol.reduce_scatter_tensor(x + 1, "sum", scatter_dim=0, group=dist.group.WORLD),
        compile,
    )


@case
def all_reduce(compile: Compile) -> tuple[Step, State]:
    """A collective that changes its argument."""

    def f(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        return y + dist.get_world_size()

    return _computed(f, compile)


@case
def all_reduce_of_an_argument(compile: Compile) -> tuple[Step, State]:
    """A tensor from outside is changed."""
    total = torch.zeros(4, 8)

    def f(x: Any) -> Any:
        total.add_(x)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return total.sum()

    compiled = compile(f)
    return lambda i: compiled(batch(i)), lambda: [total]


@case
def all_reduce_later(compile: Compile) -> tuple[Step, State]:
    """With a handle that is waited for."""

    def f(x: Any) -> Any:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        work.wait()
        return y * z

    return _computed(f, compile)


@case
def all_reduce_that_goes_on(compile: Compile) -> tuple[Step, State]:
    """The handle is given back, and waited for outside."""

    def f(x: Any) -> Any:
        y = x * 2
        return y, dist.all_reduce(y, async_op=True)

    compiled = compile(f)

    def step(i: int) -> Any:
        y, work = compiled(batch(i))
        work.wait()
        return y

    return step, list


@case
def broadcast(compile: Compile) -> tuple[Step, State]:
    """From rank 0."""

    def f(x: Any) -> Any:
        y = x.clone()
        dist.broadcast(y, src=0)
        return y - x

    return _computed(f, compile)


@case
def all_gather(compile: Compile) -> tuple[Step, State]:
    """Into a list, and into one tensor."""

    def f(x: Any) -> Any:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        whole = x.new_empty(2 * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(whole, x)
        return torch.cat(parts), whole * 2

    return _computed(f, compile)


@case
def barrier(compile: Compile) -> tuple[Step, State]:
    """Between operations."""

    def f(x: Any) -> Any:
        y = x + 1
        dist.barrier()
        return y * 2

    return _computed(f, compile)


@case
def value_read_after_a_collective(compile: Compile) -> tuple[Step, State]:
    """Which differs from rank to rank: nobody may communicate twice."""

    def f(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        return y * 2 if x.sum() > 0 else y * 3

    return _computed(f, compile)


@case
def objects_broadcast(compile: Compile) -> tuple[Step, State]:
    """Python's objects, which are others in each step."""
    count = [0]

    def f(x: Any) -> Any:
        count[0] += 1
        objects = [count[0] * 10 if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(objects, src=0)
        return x + objects[0]

    return _computed(f, compile)


@case
def gradients_through_collectives(compile: Compile) -> tuple[Step, State]:
    """torch.distributed.nn.functional."""
    net = nn.Linear(8, 4)
    loss_of = compile(lambda x: dist_functional.all_reduce(net(x)).pow(2).mean())

    def step(i: int) -> Any:
        net.zero_grad()
        loss = loss_of(batch(i))
        loss.backward()
        return loss

    return step, state_of(net)


@case
def sent_and_received(compile: Compile) -> tuple[Step, State]:
    """From one rank to the other and back."""

    def f(x: Any) -> Any:
        other = 1 - dist.get_rank()
        got = torch.empty_like(x)
        works = [dist.isend(x, other), dist.irecv(got, other)]
        for work in works:
            work.wait()
        return got - x

    return _computed(f, compile)


@case
def ranks_go_different_ways(compile: Compile) -> tuple[Step, State]:
    """By their rank."""

    def f(x: Any) -> Any:
        y = x + 1 if dist.get_rank() == 0 else x - 1
        return funcol.all_reduce(y, "sum", dist.group.WORLD) + dist.get_rank()

    return _computed(f, compile)


@case
def counted_in_a_store(compile: Compile) -> tuple[Step, State]:
    """What a store says is never what it said."""
    store = dist.HashStore()
    return _computed(lambda x: x + store.add("steps", 1), compile)
