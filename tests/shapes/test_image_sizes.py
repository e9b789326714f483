"""Convolutions of single images of all sizes: the choice of a kernel is no condition.

ATen convolves an image of few elements by another kernel than a larger one; what comes out, and how
it lies in memory, is the same.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS

# On both sides of 20,480 elements, for 8 channels: 44 x 44 is fewer, 52 x 52 more.
SIZES = [(44, 52), (52, 56), (36, 40), (40, 36), (64, 60), (56, 44), (32, 32), (80, 72)]

LAYERS = {
    "2d": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "strided": lambda: nn.Conv2d(8, 8, 3, stride=2),
    "grouped": lambda: nn.Conv2d(8, 8, 3, groups=8),
    "dilated": lambda: nn.Conv2d(8, 8, 3, dilation=2, bias=False),
    "transposed": lambda: nn.ConvTranspose2d(8, 8, 3, stride=2),
    "1d": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(8, 8, 3)),
    "3d": lambda: nn.Sequential(nn.Unflatten(2, (4, -1)), nn.Conv3d(8, 8, 3, padding=1)),
    "last 2d": lambda: nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
def test_one_capture_serves_images_of_all_sizes(layer, last, backend):
    torch.manual_seed(0)
    model = LAYERS[layer]().eval()
    compiled = magpy.compile(lambda x: model(x).relu() * x.shape[2], backend=backend)
    with torch.no_grad():
        for height, width in SIZES * 2:
            x = torch.rand(1, 8, height, width)
            if last:
                x = x.contiguous(memory_format=torch.channels_last)
            want, got = model(x).relu() * x.shape[2], compiled(x)
            torch.testing.assert_close(got, want)
            if backend == "eager":
                assert got.stride() == want.stride()
    stats = magpy.stats(compiled)
    assert stats.captures <= 2, stats.misses_by


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_layers_that_shrink_past_the_choice(backend):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU()) for _ in "abc"]
    model = nn.Sequential(*layers).eval()
    compiled = magpy.compile(model, backend=backend)
    with torch.no_grad():
        for height, width in SIZES:
            x = torch.rand(1, 8, 3 * height, 3 * width)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert magpy.stats(compiled).captures <= 2, magpy.stats(compiled).misses_by


PREPROCESSED = {
    "viewed and divided": lambda im: im.permute(2, 0, 1)[None] / 255,
    "viewed": lambda im: im.permute(2, 0, 1)[None],
    "of an array": lambda im: (
        torch.from_numpy(im.numpy()).permute(2, 0, 1).unsqueeze(0).float().div(255)
    ),
    "made contiguous": lambda im: im.permute(2, 0, 1).contiguous().div(255)[None],
    "normalized": lambda im: (im.permute(2, 0, 1)[None] - 0.5) / torch.ones(1, 3, 1, 1),
    "of two images": lambda im: torch.stack([im, im]).permute(0, 3, 1, 2) / 255,
    "of itself": lambda im: im.permute(2, 0, 1)[None] * im.permute(2, 0, 1)[None],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PREPROCESSED)
def test_images_with_channels_last_that_are_views(name, backend):
    torch.manual_seed(0)
    model, prepared = nn.Conv2d(3, 4, 3, padding=1), PREPROCESSED[name]
    compiled = magpy.compile(lambda im: model(prepared(im)).relu(), backend=backend)
    for i in range(12):
        image = torch.rand(8 + (i * 5) % 23, 9 + (i * 7) % 19, 3)
        with torch.no_grad():
            want, got = model(prepared(image)).relu(), compiled(image)
        torch.testing.assert_close(got, want)
        if backend == "eager":
            assert got.stride() == want.stride()
    # What numpy holds may be asked for once more.
    most = 3 if name == "of an array" else 2
    assert magpy.stats(compiled).captures <= most, magpy.stats(compiled).misses_by


def test_a_choice_of_the_programs_own_is_a_condition():
    def f(x):
        return x * 2 if x.numel() > 20480 else x + 1

    compiled = magpy.compile(f, backend="eager")
    for height, width in SIZES * 2:
        x = torch.rand(1, 8, height, width)
        torch.testing.assert_close(compiled(x), f(x))


class Up(nn.Module):
    """As a U-Net or an autoencoder goes back to the sizes of an earlier layer."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.down, self.pool = nn.Conv2d(2, 3, 3, 2, 1), nn.MaxPool2d(2, return_indices=True)
        self.up, self.unpool = nn.ConvTranspose2d(3, 2, 3, 2, 1), nn.MaxUnpool2d(2)

    def forward(self, x):
        if self.kind == "transposed":
            return self.up(self.down(x), output_size=x.shape[-2:])
        if self.kind == "transposed, all sizes":
            return self.up(self.down(x), list(x.shape[:1]) + [2] + list(x.shape[2:]))
        y, indices = self.pool(x)
        return self.unpool(y * 2, indices, output_size=x.size())


@pytest.mark.parametrize("kind", ["transposed", "transposed, all sizes", "unpooled"])
def test_modules_of_torch_are_given_sizes(kind):
    torch.manual_seed(0)
    model = Up(kind)
    compiled = magpy.compile(model, backend="eager")
    for i in range(12):
        x = torch.rand(2, 2, 8 + 2 * (i % 7), 10 + 2 * (i % 5))
        want, got = model(x), compiled(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.reasons) == (2, []) or kind == "unpooled", stats.misses_by


def test_a_wrong_size_raises_as_in_eager():
    compiled = magpy.compile(Up("transposed").up, backend="eager")
    x = torch.rand(1, 3, 4, 4)
    for i in range(4):
        compiled(x[:, :, : 2 + i % 2], output_size=[3 + 2 * (i % 2), 7])
    with pytest.raises(ValueError, match="requested an output size"):
        compiled(x, output_size=[40, 7])
