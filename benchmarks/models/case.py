"""One benchmark model, and the larger standard ones that several programs measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model of the suite.

    Attributes:
        name: Printed in tables.
        group: static, dynamic or current.
        build: Makes the model (the caller seeds, and sets eval mode).
        inputs: Positional arguments for a batch size.
    """

    name: str
    group: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]

    def make(self, seed: int = 0) -> nn.Module:
        """The model in eval mode with weights that `seed` decides."""
        torch.manual_seed(seed)
        return self.build().eval()

    def example(self, batch: int, seed: int = 1) -> tuple[Any, ...]:
        """Arguments that `seed` decides."""
        torch.manual_seed(seed)
        return self.inputs(batch)


class LinearLayers(nn.Module):
    """`n` linear layers with an activation between, each a submodule: nothing but module calls."""

    def __init__(self, n: int, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


#: The sizes of a small transformer, by their names in configurations of `transformers`.
SMALL: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
}


def transformers_model(model: str, config: str, **options: Any) -> nn.Module:
    """A model of `transformers` with random weights."""
    import transformers

    built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
    return built


def token_ids(batch: int, length: int, vocabulary: int = 1000) -> tuple[torch.Tensor]:
    """One batch of tokens, (batch, length) of int64."""
    return (torch.randint(3, vocabulary, (batch, length)),)


#: Full-size models (names as in their papers) on small inputs, for the capture and overhead
#: programs, which do not measure arithmetic.
STANDARD: dict[str, Case] = {
    case.name: case
    for case in (
        *(
            Case(
                f"linear-{n}",
                "layers",
                lambda n=n: LinearLayers(n),
                lambda batch: (torch.randn(batch, 8),),
            )
            for n in (1, 10, 100, 500)
        ),
        Case(
            "resnet-50",
            "standard",
            lambda: transformers_model("ResNetForImageClassification", "ResNetConfig"),
            lambda batch: (torch.randn(batch, 3, 64, 64),),
        ),
        Case(
            "bert-base",
            "standard",
            lambda: transformers_model("BertModel", "BertConfig"),
            lambda batch: token_ids(batch, 16),
        ),
        Case(
            "gpt-2",
            "standard",
            lambda: transformers_model("GPT2LMHeadModel", "GPT2Config", use_cache=False),
            lambda batch: token_ids(batch, 16),
        ),
    )
}
