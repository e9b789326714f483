"""Thirty transformers models of thirty model types, tiny and with random weights.

Owns: each model's configuration, its inputs for a given size, and one configuration value that its
forward reads. Does not own: what is measured or tested with them. Used by
`tests/programs/test_transformers.py` and `python -m benchmarks.transformers_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Inputs = dict[str, torch.Tensor]

#: Sizes shared by most text models: two layers of width 32, so that a forward takes milliseconds.
TEXT: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 32,
    "patch_size": 8,
}
SPEECH: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "conv_dim": (16, 16, 16),
    "conv_stride": (4, 4, 4),
    "conv_kernel": (8, 8, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
    "mask_feature_prob": 0.0,
    "layerdrop": 0.0,
}


def _ids(batch: int, length: int) -> torch.Tensor:
    # No id below 3: padding and end tokens would make some heads look at the data.
    return torch.randint(3, 99, (batch, length))


def text(size: int) -> Inputs:
    """Token ids and a full attention mask; `size` is the sequence length."""
    ids = _ids(2, size)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def ids_only(size: int) -> Inputs:
    """Token ids; `size` is the sequence length."""
    return {"input_ids": _ids(2, size)}


def seq2seq(size: int) -> Inputs:
    """Encoder and decoder token ids; `size` is the encoder's length."""
    return {"input_ids": _ids(2, size), "decoder_input_ids": _ids(2, 5)}


def image(size: int) -> Inputs:
    """Images; `size` is the batch, since most vision models fix the resolution."""
    return {"pixel_values": torch.randn(size, 3, 32, 32)}


def waveform(size: int) -> Inputs:
    """Raw audio; `size` is the number of samples in hundreds."""
    return {"input_values": torch.randn(2, size * 100)}


def spectrogram(size: int) -> Inputs:
    """Log-mel features for an encoder; `size` is the batch."""
    return {"input_values": torch.randn(size, 24, 16)}


def speech_to_text(size: int) -> Inputs:
    """Log-mel features and decoder ids; `size` is the batch."""
    return {"input_features": torch.randn(size, 16, 40), "decoder_input_ids": _ids(size, 5)}


def image_and_text(size: int) -> Inputs:
    """Images and captions for a two-tower model; `size` is the batch."""
    ids = _ids(size, 7)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(size, 3, 32, 32),
    }


@dataclass(frozen=True)
class Model:
    """One model type.

    Attributes:
        name: transformers' `model_type`.
        kind: encoder, decoder, encoder-decoder, vision, audio or two-tower.
        model: Class name in `transformers`.
        config: Configuration class name in `transformers`.
        options: Arguments of the configuration.
        inputs: Makes inputs of a given size.
        sizes: Two sizes, the second for the changed-shape check.
        settles: The first call changes attributes of the model's own, which later calls read.
        knob: A configuration attribute (dotted path) that forward reads, and another value.
    """

    name: str
    kind: str
    model: str
    config: str
    options: dict[str, Any]
    inputs: Callable[[int], Inputs]
    sizes: tuple[int, int] = (8, 11)
    knob: tuple[str, Any] = field(default=("output_hidden_states", True))
    settles: bool = False

    def build(self, seed: int = 0) -> nn.Module:
        """The model in eval mode, with random weights."""
        import transformers

        torch.manual_seed(seed)
        config = getattr(transformers, self.config)(**self.options)
        model: nn.Module = getattr(transformers, self.model)(config)
        return model.eval()

    def turn_knob(self, model: nn.Module) -> None:
        """Sets the knob's other value on `model`'s configuration."""
        *path, name = self.knob[0].split(".")
        config: Any = model.config
        for step in path:
            config = getattr(config, step)
        setattr(config, name, self.knob[1])

    def example(self, which: int = 0, seed: int = 0) -> Inputs:
        """Inputs of the first (`which=0`) or second size."""
        torch.manual_seed(100 + seed)
        return self.inputs(self.sizes[which])


def _text(**changes: Any) -> dict[str, Any]:
    return {**TEXT, **changes}


def _vision(**changes: Any) -> dict[str, Any]:
    return {**VISION, **changes}


_SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
}
_TOWER: dict[str, Any] = {**VISION, "projection_dim": 16}
_KV: dict[str, Any] = {"num_key_value_heads": 2}

ZOO: tuple[Model, ...] = (
    # encoders
    Model("bert", "encoder", "BertForSequenceClassification", "BertConfig", _text(), text),
    Model("roberta", "encoder", "RobertaModel", "RobertaConfig", _text(), text),
    Model(
        "distilbert",
        "encoder",
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        text,
    ),
    Model("albert", "encoder", "AlbertModel", "AlbertConfig", _text(embedding_size=16), text),
    Model("electra", "encoder", "ElectraModel", "ElectraConfig", _text(embedding_size=16), text),
    Model(
        "deberta-v2",
        "encoder",
        "DebertaV2Model",
        "DebertaV2Config",
        _text(relative_attention=True, pos_att_type="p2c|c2p", position_buckets=8),
        text,
    ),
    Model("mpnet", "encoder", "MPNetModel", "MPNetConfig", _text(), text),
    Model("camembert", "encoder", "CamembertForMaskedLM", "CamembertConfig", _text(), text),
    # decoders
    Model(
        "gpt2",
        "decoder",
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": 99,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        ids_only,
    ),
    Model("gpt_neox", "decoder", "GPTNeoXForCausalLM", "GPTNeoXConfig", _text(), ids_only),
    Model("llama", "decoder", "LlamaForCausalLM", "LlamaConfig", _text(**_KV), ids_only),
    Model("qwen2", "decoder", "Qwen2ForCausalLM", "Qwen2Config", _text(**_KV), ids_only),
    Model("mistral", "decoder", "MistralForCausalLM", "MistralConfig", _text(**_KV), ids_only),
    Model(
        "gemma",
        "decoder",
        "GemmaForCausalLM",
        "GemmaConfig",
        _text(head_dim=8, **_KV),
        ids_only,
    ),
    Model(
        "opt",
        "decoder",
        "OPTForCausalLM",
        "OPTConfig",
        _text(ffn_dim=37, word_embed_proj_dim=32),
        text,
    ),
    Model(
        "bloom",
        "decoder",
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        text,
    ),
    # encoder-decoders
    Model(
        "t5",
        "encoder-decoder",
        "T5Model",
        "T5Config",
        {
            "vocab_size": 99,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 37,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        seq2seq,
        knob=("return_dict", False),
    ),
    Model("bart", "encoder-decoder", "BartModel", "BartConfig", _SEQ2SEQ, seq2seq),
    Model("marian", "encoder-decoder", "MarianModel", "MarianConfig", _SEQ2SEQ, seq2seq),
    Model("pegasus", "encoder-decoder", "PegasusModel", "PegasusConfig", _SEQ2SEQ, seq2seq),
    # vision
    Model("vit", "vision", "ViTForImageClassification", "ViTConfig", _vision(), image, (2, 3)),
    Model("deit", "vision", "DeiTModel", "DeiTConfig", _vision(), image, (2, 3)),
    Model("dinov2", "vision", "Dinov2Model", "Dinov2Config", _vision(), image, (2, 3)),
    Model(
        "resnet",
        "vision",
        "ResNetForImageClassification",
        "ResNetConfig",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "layer_type": "basic",
        },
        image,
        (2, 3),
    ),
    Model(
        "convnext",
        "vision",
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
        image,
        (2, 3),
    ),
    Model(
        "swin",
        "vision",
        "SwinModel",
        "SwinConfig",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        image,
        (2, 3),
        settles=True,
    ),
    # audio
    Model("wav2vec2", "audio", "Wav2Vec2Model", "Wav2Vec2Config", SPEECH, waveform, (20, 26)),
    Model(
        "audio-spectrogram-transformer",
        "audio",
        "ASTModel",
        "ASTConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 37,
            "patch_size": 8,
            "frequency_stride": 8,
            "time_stride": 8,
            "max_length": 24,
            "num_mel_bins": 16,
        },
        spectrogram,
        (2, 3),
    ),
    Model(
        "whisper",
        "audio",
        "WhisperModel",
        "WhisperConfig",
        {
            **_SEQ2SEQ,
            "num_mel_bins": 16,
            "max_source_positions": 20,
            "max_target_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        speech_to_text,
        (2, 3),
    ),
    # two towers
    Model(
        "clip",
        "two-tower",
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {**TEXT, "projection_dim": 16, "bos_token_id": 1, "eos_token_id": 98},
            "vision_config": _TOWER,
            "projection_dim": 16,
        },
        image_and_text,
        (2, 3),
        ("text_config.output_hidden_states", True),
    ),
)
