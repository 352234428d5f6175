"""Tiny models with seeded random weights, and what Hugging Face generates with them.

They are built through transformers, saved in a temporary directory and loaded from
there by both sides. Random weights make every token a close race, so a wrong number
anywhere changes the text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB_SIZE = 151
SIZES: dict[str, Any] = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)

# name -> (config class, what is special about it)
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", dict(tie_word_embeddings=True)),
    "llama3-rope": ("LlamaConfig", dict(rope_parameters=LLAMA3_ROPE)),
    "llama-bias": ("LlamaConfig", dict(attention_bias=True, mlp_bias=True)),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", dict(head_dim=16)),
}

# The same for models with layers of several kinds, which come in later chapters
HYBRID: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "Gemma3TextConfig",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=8,
            layer_types=[
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
        ),
    ),
    "qwen3_5": (
        "Qwen3_5TextConfig",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=12,
            layer_types=[
                "linear_attention",
                "full_attention",
                "linear_attention",
                "linear_attention",
            ],
        ),
    ),
}


def build_tiny(name: str, root: Path, **overrides: Any) -> Path:
    """Save the tiny model `name` under `root` and return its directory."""
    config_class, special = (TINY | HYBRID)[name]
    config = getattr(transformers, config_class)(**{**SIZES, **special, **overrides})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():  # also norms and biases: none may be a no-op
        torch.nn.init.normal_(parameter, mean=0.1 * (parameter.dim() == 1), std=0.5)
    path = root / name
    model.save_pretrained(path)
    return path


def load_hf(model_dir: Path, device: str = "cpu") -> Any:
    """The same model in transformers, in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32
    )
    return model.eval().to(device)


@torch.inference_mode()
def hf_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    """[len(token_ids), vocab_size]"""
    return model(torch.tensor([token_ids], device=model.device)).logits[0]


@torch.inference_mode()
def hf_greedy(model: Any, prompt: list[int], max_tokens: int) -> list[int]:
    """What `generate` continues `prompt` with, one request at a time."""
    ids = torch.tensor([prompt], device=model.device)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


def random_prompt(length: int, seed: int) -> list[int]:
    """Token ids that are valid for every tiny model."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist()
