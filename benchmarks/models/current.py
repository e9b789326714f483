"""Current model families, from transformers' own code with small random configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.case import SMALL, Case, token_ids, transformers_model


class ByName(nn.Module):
    """Calls a model with its arguments by name, so that a case can pass them by position."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: Tensor) -> Any:
        return self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)


_SIZES: dict[str, Any] = {**SMALL, "pad_token_id": 0}


def _llama() -> nn.Module:
    model = transformers_model("LlamaForCausalLM", "LlamaConfig", **_SIZES, num_key_value_heads=2)
    return ByName(model, ("input_ids",), use_cache=False)


def _qwen() -> nn.Module:
    model = transformers_model("Qwen2ForCausalLM", "Qwen2Config", **_SIZES, num_key_value_heads=2)
    return ByName(model, ("input_ids",), use_cache=False)


def _whisper() -> nn.Module:
    model = transformers_model(
        "WhisperModel",
        "WhisperConfig",
        vocab_size=1000,
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        num_mel_bins=40,
        max_source_positions=100,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return ByName(model, ("input_features", "decoder_input_ids"), use_cache=False)


def _clip() -> nn.Module:
    tower = {k: v for k, v in _SIZES.items() if k not in ("vocab_size", "pad_token_id")}
    vision = {k: v for k, v in tower.items() if k != "max_position_embeddings"}
    model = transformers_model(
        "CLIPModel",
        "CLIPConfig",
        text_config={**_SIZES, "bos_token_id": 1, "eos_token_id": 999},
        vision_config={**vision, "image_size": 64, "patch_size": 16},
        projection_dim=64,
    )
    return ByName(model, ("input_ids", "pixel_values"))


def _t5() -> nn.Module:
    model = transformers_model(
        "T5Model",
        "T5Config",
        vocab_size=1000,
        d_model=128,
        d_kv=32,
        d_ff=256,
        num_layers=3,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return ByName(model, ("input_ids", "decoder_input_ids"), use_cache=False)


CASES = (
    Case("Llama", "current", _llama, lambda batch: token_ids(batch, 64)),
    Case("Qwen", "current", _qwen, lambda batch: token_ids(batch, 64)),
    Case(
        "Whisper",
        "current",
        _whisper,
        lambda batch: (torch.randn(batch, 40, 200), *token_ids(batch, 16)),
    ),
    Case(
        "CLIP",
        "current",
        _clip,
        lambda batch: (*token_ids(batch, 16), torch.randn(batch, 3, 64, 64)),
    ),
    Case("T5", "current", _t5, lambda batch: (*token_ids(batch, 32), *token_ids(batch, 16))),
)
