"""Functions of training scripts: an epoch over a loader that shuffles, with sums and progress."""

import contextlib
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Script:
    """What a training script has in its globals."""

    def __init__(self, compile, kind):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        data = torch.utils.data.TensorDataset(torch.rand(22, 4), torch.arange(22) % 3)
        self.loader = torch.utils.data.DataLoader(data, batch_size=6, shuffle=True)
        self.run = compile(getattr(self, kind))

    def plain(self, loader, epoch):
        self.net.train()
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()

    def counted(self, loader, epoch):
        self.net.train()
        total, seen = 0, 0
        for i, (x, y) in enumerate(loader):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            seen += len(x)
            if i % 2 == 0:
                print(f"{epoch}: {seen}/{len(loader.dataset)} {loss:.4f} {total / seen:.4f}")
        return total / seen

    @torch.no_grad()
    def evaluated(self, loader, epoch):
        self.net.eval()
        right = 0
        for x, y in loader:
            right += (self.net(x).argmax(1) == y).sum().item()
        print("epoch %d: %.3f" % (epoch, right / len(loader.dataset)))  # noqa: UP031
        return right


def epochs(script, n=6):
    out = io.StringIO()
    torch.manual_seed(1)
    with contextlib.redirect_stdout(out):
        results = [script.run(script.loader, epoch) for epoch in range(n)]
    return results, out.getvalue(), [p.detach().clone() for p in script.net.parameters()]


@pytest.mark.parametrize("kind", ["plain", "counted", "evaluated"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_body_is_compiled_from_the_second_epoch_on(kind, backend):
    eager = Script(lambda f: f, kind)
    script = Script(lambda f: magpy.compile(f, backend=backend), kind)
    wanted, found = epochs(eager), epochs(script)
    if backend == "eager":
        assert found[:2] == wanted[:2]
    for a, b in zip(found[2], wanted[2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    stats = magpy.stats(script.run)
    assert stats.eager_calls <= 1
    assert stats.captures <= 10
    # What the loader does, an operation for each sample, stays Python's.
    assert stats.share > (0.3 if kind == "evaluated" else 0.5)
