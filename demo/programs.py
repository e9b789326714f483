"""What the demo compiles: four models of transformers, and one program of its own.

Owns: models and inputs, sized so that TorchInductor compiles them in minutes on two cores. Does not
own: what is done with them (`demo/__main__.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.models.case import Case, token_ids, transformers_model


class Refiner(nn.Module):
    """Refines a state until it is settled: how many steps that takes depends on the data.

    It also keeps a history and returns Python numbers. `fullgraph=True` of torch.compile refuses
    the loop's condition.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.step = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.history: list[int] = []

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, object]]:
        steps = 0
        while x.abs().max() > 1.0 and steps < 20:
            x = 0.8 * x + 0.05 * torch.tanh(self.step(self.norm(x)))
            steps += 1
        self.history.append(steps)
        return x, {"steps": steps, "settled": steps < 20, "scale": x.std().item()}


MODELS = (
    Case(
        "BERT",
        "transformers",
        lambda: transformers_model(
            "BertModel",
            "BertConfig",
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
        ),
        lambda batch: token_ids(batch, 64),
    ),
    Case(
        "GPT-2",
        "transformers",
        lambda: transformers_model(
            "GPT2LMHeadModel",
            "GPT2Config",
            n_embd=256,
            n_layer=4,
            n_head=4,
            vocab_size=5000,
            bos_token_id=1,
            eos_token_id=2,
        ),
        lambda batch: token_ids(batch, 64),
    ),
    Case(
        "ResNet-50",
        "transformers",
        lambda: transformers_model("ResNetForImageClassification", "ResNetConfig"),
        lambda batch: (torch.randn(batch, 3, 96, 96),),
    ),
    Case(
        "ViT",
        "transformers",
        lambda: transformers_model(
            "ViTForImageClassification",
            "ViTConfig",
            hidden_size=192,
            num_hidden_layers=4,
            num_attention_heads=3,
            intermediate_size=768,
            image_size=96,
        ),
        lambda batch: (torch.randn(batch, 3, 96, 96),),
    ),
)

REFUSED = Case("Refiner", "own", Refiner, lambda batch: (torch.randn(batch, 64),))
