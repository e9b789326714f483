"""What a training step tells of its loss keeps nothing of the step out of its graph.

A number that is read after the update, and text of it, must not fail then: what cannot raise,
whatever the loss is, is done when the graph is done.
"""

import math

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same

TAILS = {
    "item": lambda loss: loss.item(),
    "float": lambda loss: float(loss),
    "tolist": lambda loss: loss.tolist(),
    "numpy": lambda loss: loss.detach().numpy(),
    "of numpy": lambda loss: loss.detach().cpu().numpy().item(),
    "text": lambda loss: f"{loss.item():.3f}",
    "text of a tensor": lambda loss: f"{loss:.3f}",
    "text by %": lambda loss: "loss %.3f (%g%%)" % (loss.item(), float(loss)),  # noqa: UP031
    "text of one by %": lambda loss: "%.3f" % loss.item(),  # noqa: UP031
    "text by format": lambda loss: str.format("{:>9.2e}", loss.item()),
    "rounded": lambda loss: round(loss.item(), 3),
    "dict": lambda loss: {"loss": loss.item(), "again": float(loss) / 2},
    "and the loss": lambda loss: (loss.item(), loss.detach()),
    "and its data": lambda loss: (float(loss), loss.data),
    "twice detached": lambda loss: (loss.detach().item(), loss.detach()),
}


def world(tail):
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return tail(loss)

    return step, list(model.parameters())


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("name", TAILS)
def test_a_step_is_one_graph(name):
    (eager, own), (step, parameters) = world(TAILS[name]), world(TAILS[name])
    compiled = magpy.compile(step, backend="aot_eager")
    for value in (1.0, 0.5, -2.0, 1e18, 3.0, math.inf, math.nan):
        x = torch.full((4, 8), value)
        assert_same(compiled(x), eager(x))
        assert_same(parameters, own)
        assert_same([p.grad for p in parameters], [p.grad for p in own])
    stats = magpy.stats(compiled)
    assert stats.share == 1.0, stats
    assert set(stats.segments) == {1} and not stats.uncompiled, stats


@pytest.mark.parametrize(
    "tail",
    [
        lambda loss: (loss, loss.detach()),
        lambda loss: (loss.detach().numpy(), loss, loss.detach()),
        lambda loss: (loss.item(), loss),
    ],
)
def test_the_loss_itself_beside_what_is_cut_off_from_it(tail):
    (eager, own), (step, parameters) = world(tail), world(tail)
    compiled = magpy.compile(step, backend="aot_eager")
    for value in (1.0, 0.5, -2.0, 3.0):
        x = torch.full((4, 8), value)
        got, wanted = compiled(x), eager(x)
        assert_same(
            [torch.as_tensor(v).detach() for v in got],
            [torch.as_tensor(v).detach() for v in wanted],
        )
        assert_same(parameters, own)
        loss = next(v for v in got if isinstance(v, torch.Tensor) and v.requires_grad)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
    stats = magpy.stats(compiled)
    assert stats.share > 0.8 and not stats.uncompiled, stats


@pytest.mark.parametrize(
    "tail",
    [
        lambda loss: int(loss.item()),
        lambda loss: "%d" % loss.item(),  # noqa: UP031
        lambda loss: round(loss.item()),
        lambda loss: math.exp(loss.item()),
        lambda loss: chr(int(loss > 0) + 65),
        lambda loss: chr(int(loss > 100) * 2000000 + 65),
        lambda loss: str.format("{:c} {:.2f}", int(loss > 100) * 2000000 + 65, loss.item()),
        lambda loss: str.format("{:.{}f}", loss.item(), 3 - 10 * int(loss > 100)),
        lambda loss: format(1.5, "." + str(3 - 10 * int(loss > 100)) + "f"),
        lambda loss: float(torch.complex(loss.detach(), (loss > 100).float())),
    ],
)
def test_what_may_raise_raises_after_the_update_as_in_eager(tail):
    (eager, own), (step, parameters) = world(tail), world(tail)
    compiled = magpy.compile(step, backend="aot_eager")
    for value in (1.0, 0.5, -2.0, 40.0, math.nan):
        x, results = torch.full((4, 8), value), []
        for call in (compiled, eager):
            try:
                results.append(call(x))
            except (ValueError, OverflowError, RuntimeError) as e:
                results.append((type(e), str(e)))
        assert_same(*results)
        assert_same(parameters, own)
