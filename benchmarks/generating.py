"""Text generation on requests of other batch sizes and lengths: `python -m benchmarks.generating`.

Each model is asked by `generate` for as many requests as a server gets, greedily. Given are the
captures of all requests, the calls that ran eagerly after the third one, how much of the tensor
operations is in graphs, and the seconds of all requests, capturing and compiling included, beside
eager's. The tokens are compared with eager's.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import magpy
from benchmarks import measure
from benchmarks.models.case import transformers_model

TOKENS = 100
#: Batch size and prompt length, in the order of the requests.
REQUESTS = [
    *[(2, 6), (2, 9), (2, 24), (2, 17), (5, 12), (4, 9), (6, 12), (1, 6), (1, 7), (6, 23)],
    *[(3, 19), (1, 11), (5, 20), (5, 20), (5, 4), (2, 10), (1, 21), (4, 10), (3, 17), (3, 22)],
]
#: The requests in which eager calls are as expected: each kind of call is new.
FIRST = 3

_SPECIAL = {"vocab_size": TOKENS, "eos_token_id": None, "bos_token_id": 1, "pad_token_id": 0}
_WIDTHS = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def models() -> dict[str, Callable[[], nn.Module]]:
    """Small models of random weights by name."""
    made = {
        "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 4, "n_head": 4, "n_embd": 128}),
        "Llama": ("LlamaForCausalLM", "LlamaConfig", _WIDTHS | _HEADS),
        "T5": (
            "T5ForConditionalGeneration",
            "T5Config",
            {
                "d_model": 128,
                "d_kv": 32,
                "d_ff": 256,
                "num_layers": 4,
                "num_heads": 4,
                "decoder_start_token_id": 0,
            },
        ),
        "Mixtral": (
            "MixtralForCausalLM",
            "MixtralConfig",
            _WIDTHS | _HEADS | {"num_local_experts": 4},
        ),
        "Mamba": ("MambaForCausalLM", "MambaConfig", {"hidden_size": 128, "num_hidden_layers": 4}),
    }
    return {
        name: lambda of=of: transformers_model(of[0], of[1], **_SPECIAL, **of[2]).eval()
        for name, of in made.items()
    }


def _ask(model: Any, prompt: torch.Tensor, tokens: int) -> tuple[float, torch.Tensor]:
    """The seconds that a request took, and its tokens."""
    start = time.perf_counter()
    mask = torch.ones_like(prompt)
    answer = model.generate(prompt, attention_mask=mask, max_new_tokens=tokens, do_sample=False)
    return time.perf_counter() - start, answer


def measured(name: str, backend: str, tokens: int) -> list[str]:
    """A row of the table.

    Raises:
        AssertionError: the tokens are not eager's.
    """
    torch.manual_seed(0)
    eager = models()[name]()
    model = magpy.compile(copy.deepcopy(eager), backend=backend)
    spent = {"eager": 0.0, "magpy": 0.0}
    first = 0
    for i, size in enumerate(REQUESTS):
        prompt = torch.randint(4, TOKENS, size)
        seconds, want = _ask(eager, prompt, tokens)
        spent["eager"] += seconds
        seconds, got = _ask(model, prompt, tokens)
        spent["magpy"] += seconds
        assert torch.equal(got, want), (name, size)
        if i + 1 == FIRST:
            first = magpy.stats(model).eager_calls
    stats = magpy.stats(model)
    return [
        name,
        str(stats.captures),
        str(stats.hits),
        str(stats.eager_calls - first),
        f"{stats.share:.2f}",
        *map(measure.seconds, spent.values()),
        f"{spent['magpy'] / spent['eager']:.2f}x",
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens of a request")
    parser.add_argument("names", nargs="*", metavar="model")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [measured(n, options.backend, options.tokens) for n in options.names or models()]
    header = ["model", "captures", "hits", "eager later", "share", "eager", "magpy", "of eager"]
    print(f"{measure.machine_line()}; backend {options.backend}, {len(REQUESTS)} requests\n")
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()
