"""Lists of tensors, of another length in each call: detection, ragged batches, collected losses.

What reads the list is Python's, wherever that is, and the body of a loop over it is one region.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Detector(nn.Module):
    """As those of torchvision: a list of images in, a list of dicts out."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Conv2d(8, 5, 1)

    def resized(self, images):
        made = []
        for image in images:
            made.append(F.interpolate(image[None], size=(16, 16), mode="bilinear")[0])
        return torch.stack(made)

    def forward(self, images):
        x = self.head(self.backbone(self.resized(images))).flatten(2)
        found = []
        for image, scores in zip(images, x, strict=True):
            best = scores.sigmoid().amax(1)
            found.append({"best": best * 2 + 1, "size": tuple(image.shape[-2:])})
        return found


def detector():
    model = Detector().eval()
    return model, lambda i: ([torch.randn(3, 20 + 4 * (i % 3), 24) for _ in range(1 + 5 * i % 13)],)


def decorated():
    backbone = Backbone().eval()

    @torch.no_grad()
    def f(images):
        means = []
        for image in images:
            y = backbone(image[None]) * 2
            means.append(y.mean() + y.amax())
        return means

    return f, lambda i: ([torch.randn(3, 16, 16) for _ in range(1 + 5 * i % 13)],)


def zipped():
    linear = nn.Linear(6, 3)

    def f(xs, ys):
        total = torch.zeros(())
        for x, y in zip(xs, ys, strict=True):
            total = total + F.cross_entropy(linear(x).relu(), y) * x.shape[0]
        return total / len(xs)

    def make(i):
        sizes = [2 + (i + k) % 4 for k in range(1 + 5 * i % 13)]
        return [torch.randn(n, 6) for n in sizes], [torch.arange(n) % 3 for n in sizes]

    return f, make


def in_a_dict():
    backbone = Backbone().eval()

    def f(batch):
        out = 0.0
        for x in batch["items"]:
            y = backbone(x[None])
            out = out + (y * 2).sum()
        return out

    return f, lambda i: ({"items": [torch.randn(3, 16, 16) for _ in range(1 + 5 * i % 13)]},)


def handed_on():
    linear = nn.Linear(6, 3)

    def inner(*rows):
        (xs,) = rows
        return torch.cat(xs) + 1

    def f(xs):
        x = inner(xs)
        h = linear(x).relu()
        return h.softmax(-1) * 2

    return f, lambda i: ([torch.randn(2, 6) for _ in range(1 + 5 * i % 13)],)


@pytest.mark.parametrize("program", [detector, decorated, zipped, in_a_dict, handed_on])
def test_a_few_captures_serve_all_lengths(program):
    torch.manual_seed(0)
    f, make = program()
    compiled = magpy.compile(f, backend="eager")
    for i in range(20):
        given = make(i)
        compare(compiled(*given), f(*given))
    stats = magpy.stats(compiled)
    before = stats.captures
    for i in range(20, 30):
        given = make(i)
        compare(compiled(*given), f(*given))
    stats = magpy.stats(compiled)
    assert stats.captures == before <= 8
    assert stats.in_python
    assert stats.share > 0.6


def compare(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
        assert a.requires_grad == b.requires_grad
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            compare(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            compare(a[k], b[k])
    else:
        assert a == b


def test_a_list_that_a_call_changes_is_changed_as_in_eager():
    linear = nn.Linear(6, 3)

    def f(xs):
        for k in range(len(xs)):
            xs[k] = linear(xs[k]).relu()
        xs.append(torch.cat(xs).sum(0))
        return len(xs)

    compiled = magpy.compile(f, backend="eager")
    for i in range(16):
        a = [torch.randn(2, 6) for _ in range(1 + i % 5)]
        b = list(a)
        assert compiled(a) == f(b)
        compare(a, b)


def test_numbers_that_are_one_object_are_no_other_call():
    """Once a region is given the height and the width of an image, those may be equal."""

    def f(x, sizes):
        out = []
        for h, w in sizes:
            out.append((x * h).sum() + w)
        return out

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(3)
    for i in range(12):
        sizes = [(300 + k, 300 + k * (i % 2)) for k in range(1 + 5 * i % 13)]
        compare(compiled(x, sizes), f(x, sizes))
    before = magpy.stats(compiled).captures
    assert before <= 6
    for n in (400, 500, 600):
        compare(compiled(x, [(n, n), (n, n + 1)]), f(x, [(n, n), (n, n + 1)]))
    assert magpy.stats(compiled).captures == before


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_padded_texts_settle_after_ten_calls():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 8), nn.Tanh()).eval()

    @torch.no_grad()
    def encode(texts):
        tokens = [[1] + [len(w) + 3 for w in t.split()] + [2] for t in texts]
        n = max(map(len, tokens))
        ids = torch.tensor([t + [0] * (n - len(t)) for t in tokens])
        mask = (ids != 0).float()[..., None]
        return F.normalize((model(ids) * mask).sum(1) / mask.sum(1), dim=-1)

    def texts(i):
        return [
            " ".join("ab" * (k + j) for j in range(2 + (i * 3 + k) % 5)) for k in range(1 + i % 4)
        ]

    compiled = magpy.compile(encode, backend="eager")
    for i in range(10):
        assert torch.equal(compiled(texts(i)), encode(texts(i)))
    before = magpy.stats(compiled)
    for i in range(10, 24):
        assert torch.equal(compiled(texts(i)), encode(texts(i)))
    after = magpy.stats(compiled)
    assert before.captures <= 6 and after.captures == before.captures, (before, after)
    assert after.eager_calls == before.eager_calls and after.share > 0.9, after
