"""Models with a fixed operator graph: convolutional networks and encoders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.case import SMALL, Case, token_ids, transformers_model


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """Stages of basic blocks, halving the resolution between stages."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64), depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        last = widths[0]
        for stage, width in enumerate(widths):
            for i in range(depth):
                blocks.append(BasicBlock(last, width, 2 if stage and i == 0 else 1))
                last = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(last, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(x.mean((2, 3)))


class DenseLayer(nn.Module):
    """Takes every earlier feature map of its block."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.conv(F.relu(self.norm(torch.cat(features, 1))))


class DenseNet(nn.Module):
    """Dense blocks joined by pooling transitions; each block grows a Python list."""

    def __init__(self, growth: int = 8, blocks: tuple[int, ...] = (4, 4, 4)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        width = 16
        for layers in blocks:
            self.blocks.append(
                nn.ModuleList(DenseLayer(width + i * growth, growth) for i in range(layers))
            )
            width += layers * growth
            self.transitions.append(nn.Conv2d(width, width // 2, 1))
            width //= 2
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions, strict=True):
            features = [x]
            for layer in block:
                features.append(layer(features))
            x = F.avg_pool2d(transition(torch.cat(features, 1)), 2)
        return self.head(x.mean((2, 3)))


class Quantizer(nn.Module):
    """Rounds to `2**bits` levels of a scale."""

    scale: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bound = 2 ** (bits - 1)
        self.register_buffer("scale", torch.tensor(4.0 / self.bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(torch.round(x / self.scale), -self.bound, self.bound - 1)


class QuantizedLinear(nn.Module):
    """Integer weights (int8 buffers) and quantized activations, rescaled after the product."""

    weight: Tensor
    weight_scale: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        w = torch.randn(outputs, inputs) / inputs**0.5
        scale = w.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (w / scale).round().to(torch.int8))
        self.register_buffer("weight_scale", scale.flatten())
        self.quantize = Quantizer(8)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(self.quantize(x), self.weight.to(x.dtype))
        return y * (self.quantize.scale * self.weight_scale) + self.bias


class QuantizedNet(nn.Module):
    """A perceptron of quantized layers."""

    def __init__(self, width: int = 256, depth: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(QuantizedLinear(width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class TridentBlock(nn.Module):
    """Branches that share weights and differ in dilation; at test time only the middle one runs."""

    def __init__(self, width: int, dilations: tuple[int, ...] = (1, 2, 3)) -> None:
        super().__init__()
        self.dilations = dilations
        self.test_branch = 1
        self.reduce = nn.Conv2d(width, width // 2, 1)
        self.weight = nn.Parameter(torch.randn(width // 2, width // 2, 3, 3) * 0.05)
        self.norm = nn.BatchNorm2d(width // 2)
        self.expand = nn.Conv2d(width // 2, width, 1)

    def branches(self, count: int) -> list[int]:
        if self.training or count > 1:
            return list(range(len(self.dilations)))
        return [self.test_branch]

    def forward(self, xs: list[Tensor]) -> list[Tensor]:
        chosen = self.branches(len(xs))
        if len(xs) == 1:
            xs = xs * len(chosen)
        outputs = []
        for x, i in zip(xs, chosen, strict=True):
            d = self.dilations[i]
            y = F.relu(self.reduce(x))
            y = F.relu(self.norm(F.conv2d(y, self.weight, padding=d, dilation=d)))
            outputs.append(F.relu(x + self.expand(y)))
        return outputs


class Trident(nn.Module):
    """A backbone that ends in trident blocks and returns a feature map for each branch."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.ModuleList(TridentBlock(width) for _ in range(depth))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = F.relu(self.stem(x))
        xs = [x, x, x]
        for block in self.blocks:
            xs = block(xs)
        return {f"branch{i}": y for i, y in enumerate(xs)}


class DepthDecoder(nn.Module):
    """Upsampling decoder over encoder features; layers and outputs sit in dicts with tuple keys."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.encoder = nn.ModuleList()
        last = 3
        for w in widths:
            self.encoder.append(nn.Conv2d(last, w, 3, 2, 1))
            last = w
        self.convs: dict[tuple[str, int], nn.Module] = {}
        for i in reversed(range(len(widths))):
            skip = widths[i - 1] if i else 0
            out = max(8, widths[i] // 2)
            self.convs["up", i] = nn.Conv2d(last, out, 3, padding=1)
            self.convs["merge", i] = nn.Conv2d(out + skip, out, 3, padding=1)
            self.convs["disp", i] = nn.Conv2d(out, 1, 3, padding=1)
            last = out
        self.decoder = nn.ModuleList(self.convs.values())

    def forward(self, x: Tensor) -> dict[tuple[str, int], Tensor]:
        features = []
        for layer in self.encoder:
            x = F.elu(layer(x))
            features.append(x)
        outputs = {}
        for i in reversed(range(len(features))):
            x = F.elu(self.convs["up", i](x))
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            if i > 0:
                x = torch.cat([x, features[i - 1]], 1)
            x = F.elu(self.convs["merge", i](x))
            outputs["disp", i] = torch.sigmoid(self.convs["disp", i](x))
        return outputs


class TwoTowers(nn.Module):
    """Image and text encoders whose normalized features are compared, with a temperature."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.vision = ResNet((16, 32, 64))
        self.vision.head = nn.Linear(64, width)
        self.embedding = nn.Embedding(1000, width)
        self.text = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, image: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        a = F.normalize(self.vision(image), dim=-1)
        b = F.normalize(self.text(self.embedding(ids))[:, 0], dim=-1)
        logits = a @ b.t() / self.temperature
        return logits, logits.t()


def _image(batch: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, 64, 64),)


CASES = (
    Case("ResNet", "static", ResNet, _image),
    Case("DenseNet", "static", DenseNet, _image),
    Case(
        "BERT",
        "static",
        lambda: transformers_model("BertModel", "BertConfig", **SMALL),
        lambda batch: token_ids(batch, 64),
    ),
    Case(
        "DeBERTa",
        "static",
        lambda: transformers_model(
            "DebertaV2Model",
            "DebertaV2Config",
            relative_attention=True,
            pos_att_type="p2c|c2p",
            position_buckets=32,
            **SMALL,
        ),
        lambda batch: token_ids(batch, 64),
    ),
    Case("Quantized", "static", QuantizedNet, lambda batch: (torch.randn(batch, 256),)),
    Case("TridentNet", "static", Trident, _image),
    Case("MonoDepth", "static", DepthDecoder, _image),
    Case("ALIGN", "static", TwoTowers, lambda batch: (*_image(batch), *token_ids(batch, 16))),
)
