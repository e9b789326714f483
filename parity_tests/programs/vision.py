"""Programs: blocks of image networks."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(inp, out, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inp, out, 3, stride, 1, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU6(inplace=True),
    )


class Residual(nn.Module):
    """A basic block with an optional projection, adding in place."""

    def __init__(self, inp, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(inp, out, stride), nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out)
        )
        self.downsample = None
        if stride != 1 or inp != out:
            self.downsample = nn.Conv2d(inp, out, 1, stride)

    def forward(self, x):
        identity = x
        out = self.body(x)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return F.relu(out, inplace=True)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduction=2):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // reduction),
            nn.ReLU(True),
            nn.Linear(channels // reduction, channels),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        b, c, *_ = x.size()
        gate = self.fc(self.pool(x).view(b, c)).view(b, c, 1, 1)
        return x * gate.expand_as(x)


class InvertedResidual(nn.Module):
    def __init__(self, inp, out, stride, expand):
        super().__init__()
        hidden = int(round(inp * expand))
        self.use_res = stride == 1 and inp == out
        layers = []
        if expand != 1:
            layers.append(conv_bn(inp, hidden))
        layers.extend(
            [conv_bn(hidden, hidden, stride, groups=hidden), nn.Conv2d(hidden, out, 1, bias=False)]
        )
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)


class TinyUnet(nn.Module):
    """Down, up, and skips cropped or padded to fit."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([conv_bn(1, 2), conv_bn(2, 4)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(4, 4, 2, 2), nn.ConvTranspose2d(4, 2, 2, 2)])
        self.merge = nn.ModuleList([conv_bn(8, 4), conv_bn(4, 2)])

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
            x = up(x)
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = merge(torch.cat([skip, x], 1))
        return x


class FeaturePyramid(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.lateral = nn.ModuleList([nn.Conv2d(c, out, 1) for c in channels])
        self.smooth = nn.ModuleList([nn.Conv2d(out, out, 3, padding=1) for _ in channels])

    def forward(self, feats):
        laterals = [conv(f) for conv, f in zip(self.lateral, feats)]
        for i in range(len(laterals) - 1, 0, -1):
            laterals[i - 1] = laterals[i - 1] + F.interpolate(
                laterals[i], size=laterals[i - 1].shape[-2:], mode="nearest"
            )
        return tuple(smooth(item) for smooth, item in zip(self.smooth, laterals))


class PixelShuffleUp(nn.Module):
    def __init__(self, scale):
        super().__init__()
        stages = []
        for _ in range(int(math.log(scale, 2))):
            stages += [nn.Conv2d(2, 8, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU()]
        self.up = nn.Sequential(*stages)

    def forward(self, x):
        return torch.clamp(self.up(x), 0, 1) + F.interpolate(
            x, scale_factor=4, mode="bilinear", align_corners=False
        )


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Linear(16, 6)
        self.loc.weight.data.zero_()
        self.loc.bias.data.copy_(torch.tensor([1, 0, 0.1, 0, 1, -0.1], dtype=torch.float))

    def forward(self, x):
        theta = self.loc(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


class CoordConv(nn.Module):
    """Adds coordinate channels before the convolution."""

    def __init__(self, radius=True):
        super().__init__()
        self.radius = radius
        self.conv = nn.Conv2d(2 + 2 + int(radius), 3, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        ys = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(b, 1, h, w)
        xs = torch.linspace(-1, 1, w).view(1, 1, 1, w).expand(b, 1, h, w)
        parts = [x, ys, xs]
        if self.radius:
            parts.append(torch.sqrt(ys**2 + xs**2))
        return self.conv(torch.cat(parts, dim=1))


class ChannelShuffle(nn.Module):
    """Split, transform one half, concatenate, shuffle."""

    def __init__(self, channels, groups=2):
        super().__init__()
        self.groups = groups
        self.branch = conv_bn(channels // 2, channels // 2)

    def forward(self, x):
        x1, x2 = x.chunk(2, dim=1)
        out = torch.cat((x1, self.branch(x2)), dim=1)
        b, c, h, w = out.data.size()
        out = out.view(b, self.groups, c // self.groups, h, w)
        return torch.transpose(out, 1, 2).contiguous().view(b, -1, h, w)


class AtrousPyramid(nn.Module):
    def __init__(self, rates=(1, 2)):
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=r, dilation=r) for r in rates)
        self.image_pool = nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Conv2d(2, 2, 1))

    def forward(self, x):
        size = x.shape[2:]
        results = [branch(x) for branch in self.branches]
        results.append(
            F.interpolate(self.image_pool(x), size=size, mode="bilinear", align_corners=True)
        )
        return torch.cat(results, dim=1)


class PatchEmbed(nn.Module):
    """Patches with a class token and positions resized when the grid differs."""

    def __init__(self, patch=2, dim=4, grid=3):
        super().__init__()
        self.proj = nn.Conv2d(1, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.rand(1, 1 + grid * grid, dim))
        self.grid = grid

    def positions(self, h, w):
        if h == self.grid and w == self.grid:
            return self.pos
        cls, grid = self.pos[:, :1], self.pos[:, 1:]
        grid = grid.reshape(1, self.grid, self.grid, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(h, w), mode="bicubic", align_corners=False)
        return torch.cat([cls, grid.permute(0, 2, 3, 1).flatten(1, 2)], 1)

    def forward(self, x):
        x = self.proj(x)
        h, w = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1)
        return x + self.positions(h, w)


class BlurPool(nn.Module):
    def __init__(self, channels):
        super().__init__()
        kernel = torch.tensor([1.0, 2.0, 1.0])
        kernel = kernel[:, None] * kernel[None, :]
        self.register_buffer(
            "kernel", (kernel / kernel.sum())[None, None].repeat(channels, 1, 1, 1)
        )
        self.pad = nn.ReflectionPad2d(1)

    def forward(self, x):
        return F.conv2d(self.pad(x), self.kernel, stride=2, groups=x.shape[1])


class StochasticDepth(nn.Module):
    """Drops whole samples' residual branches while training."""

    def __init__(self, p):
        super().__init__()
        self.p = p
        self.conv = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        y = self.conv(x)
        if self.training and self.p > 0.0:
            keep = 1 - self.p
            mask = keep + torch.rand(
                (x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device
            )
            mask.floor_()
            y = y.div(keep) * mask
        return x + y


class AlwaysTraining(nn.Module):
    """Keeps itself in training mode whatever is asked, with dropout and batch statistics."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout2d(0.3))

    def train(self, mode=True):
        return super().train(True)

    def eval(self):
        return self.train(True)

    def forward(self, x):
        return self.net(x)


class UnfoldPatches(nn.Module):
    def forward(self, x):
        b, c, h, w = x.shape
        patches = F.unfold(x, kernel_size=2, stride=2).view(b, c, 4, -1)
        weights = patches.mean(1, keepdim=True).softmax(2)
        merged = F.fold((patches * weights).flatten(1, 2), (h, w), kernel_size=2, stride=2)
        return merged, x.unfold(2, 2, 1).unfold(3, 2, 1).shape


class AdaptiveInstanceNorm(nn.Module):
    def stats(self, x, eps=1e-5):
        n, c = x.size()[:2]
        flat = x.view(n, c, -1)
        return flat.mean(2).view(n, c, 1, 1), (flat.var(dim=2) + eps).sqrt().view(n, c, 1, 1)

    def forward(self, content, style):
        assert content.size()[:2] == style.size()[:2]
        style_mean, style_std = self.stats(style)
        mean, std = self.stats(content)
        return (content - mean.expand(content.size())) / std * style_std + style_mean


class AnchorGrid(nn.Module):
    """Anchors for every cell, made from Python lists."""

    def __init__(self, sizes=(1, 2), ratios=(0.5, 1.0)):
        super().__init__()
        self.base = [
            [-s * math.sqrt(r), -s / math.sqrt(r), s * math.sqrt(r), s / math.sqrt(r)]
            for s in sizes
            for r in ratios
        ]
        self.head = nn.Conv2d(2, len(self.base) * 4, 1)

    def forward(self, x):
        h, w = x.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        shifts = torch.stack((xs, ys, xs, ys), -1).reshape(-1, 1, 4).float()
        anchors = (shifts + torch.tensor(self.base).view(1, -1, 4)).reshape(-1, 4)
        deltas = self.head(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4)
        return anchors[None] + deltas * (anchors[:, 2:] - anchors[:, :2]).repeat(1, 2)


class ModulatedConv(nn.Module):
    """A convolution whose weights depend on the sample, by grouping the batch."""

    def __init__(self, inp, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, out, inp, 3, 3))
        self.style = nn.Linear(4, inp)

    def forward(self, x, w):
        b, c, h, width = x.shape
        weight = self.weight * self.style(w).view(b, 1, c, 1, 1)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        out = F.conv2d(x.reshape(1, b * c, h, width), weight.view(-1, c, 3, 3), padding=1, groups=b)
        return out.view(b, -1, h, width)


class MixedKernels(nn.Module):
    """Inception-like branches whose names are read from the module's own dictionary."""

    def __init__(self):
        super().__init__()
        for size in (1, 3, 5):
            self.add_module(f"branch{size}", nn.Conv2d(2, 2, size, padding=size // 2))

    def forward(self, x):
        return torch.cat(
            [module(x) for name, module in self.named_children() if name.startswith("branch")], 1
        )


TESTCASES = [
    (Residual, lambda: ([2, 4, 2], {}), lambda: ([torch.rand(2, 2, 6, 6)], {}), True),
    (SqueezeExcite, lambda: ([4], {}), lambda: ([torch.rand(2, 4, 5, 5)], {}), True),
    (InvertedResidual, lambda: ([4, 4, 1, 2], {}), lambda: ([torch.rand(2, 4, 5, 5)], {}), True),
    (TinyUnet, lambda: ([], {}), lambda: ([torch.rand(1, 1, 10, 9)], {}), True),
    (
        FeaturePyramid,
        lambda: ([(2, 3, 4), 2], {}),
        lambda: ([[torch.rand(1, 2, 8, 8), torch.rand(1, 3, 4, 4), torch.rand(1, 4, 2, 2)]], {}),
        True,
    ),
    (PixelShuffleUp, lambda: ([4], {}), lambda: ([torch.rand(1, 2, 4, 4)], {}), True),
    (SpatialTransformer, lambda: ([], {}), lambda: ([torch.rand(2, 1, 4, 4)], {}), True),
    (CoordConv, lambda: ([], {}), lambda: ([torch.rand(2, 2, 4, 5)], {}), True),
    (ChannelShuffle, lambda: ([4], {}), lambda: ([torch.rand(2, 4, 4, 4)], {}), True),
    (AtrousPyramid, lambda: ([], {}), lambda: ([torch.rand(2, 2, 5, 5)], {}), True),
    (PatchEmbed, lambda: ([], {}), lambda: ([torch.rand(2, 1, 8, 8)], {}), True),
    (BlurPool, lambda: ([2], {}), lambda: ([torch.rand(2, 2, 6, 6)], {}), True),
    (StochasticDepth, lambda: ([0.2], {}), lambda: ([torch.rand(4, 2, 2, 2)], {}), True),
    (AlwaysTraining, lambda: ([], {}), lambda: ([torch.rand(3, 1, 4, 4)], {}), True),
    (UnfoldPatches, lambda: ([], {}), lambda: ([torch.rand(1, 2, 4, 4)], {}), True),
    (
        AdaptiveInstanceNorm,
        lambda: ([], {}),
        lambda: ([torch.rand(2, 2, 4, 4), torch.rand(2, 2, 3, 3)], {}),
        True,
    ),
    (AnchorGrid, lambda: ([], {}), lambda: ([torch.rand(1, 2, 3, 2)], {}), True),
    (
        ModulatedConv,
        lambda: ([2, 3], {}),
        lambda: ([torch.rand(2, 2, 4, 4), torch.rand(2, 4)], {}),
        True,
    ),
    (MixedKernels, lambda: ([], {}), lambda: ([torch.rand(1, 2, 4, 4)], {}), True),
]
