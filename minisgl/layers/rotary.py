"""Rotary position embedding (Su et al., 2021), with the Llama 3 stretching.

A head of size D is D/2 pairs (x[i], x[i + D/2]). At position p, pair i is turned by the
angle p * theta^(-2i/D): the product of a turned query and a turned key depends only on
how far apart they stand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from minisgl.models.config import RopeConfig


class Rotation(NamedTuple):
    """How far to turn the heads of each token; [tokens, 1, head_dim] both."""

    cos: torch.Tensor
    sin: torch.Tensor


class RotaryEmbedding:
    """The rotation of every position, computed once, in float32."""

    def __init__(
        self,
        head_dim: int,
        max_position: int,
        rope: RopeConfig,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        inv_freq = 1.0 / rope.theta**exponent
        if rope.scaling is not None:
            inv_freq = stretch_llama3(inv_freq, rope.scaling)
        angles = torch.outer(torch.arange(max_position).float(), inv_freq)
        cos, sin = angles.cos(), angles.sin()
        # Both halves at once: (a, b) turns into (a, b) cos + (b, a) (-sin, sin)
        self._cos = torch.cat([cos, cos], dim=-1).to(device, dtype)
        self._sin = torch.cat([-sin, sin], dim=-1).to(device, dtype)

    def at(self, positions: torch.Tensor) -> Rotation:
        """The rotation of tokens at `positions` [tokens]; the same for every layer."""
        return Rotation(
            self._cos[positions].unsqueeze(1),
            self._sin[positions].unsqueeze(1),
        )


def rotate(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turn `heads` [tokens, num_heads, head_dim]; returns the same shape."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return torch.addcmul(heads * rotation.cos, swapped, rotation.sin)


def stretch_llama3(inv_freq: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Slow pairs are slowed down by `factor`, fast ones kept, those between blended.

    A pair is slow if it turns less than `low_freq_factor` times within the length the
    model was first trained on, and fast if more than `high_freq_factor` times
    (Llama 3.1; `rope_type` "llama3").
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inv_freq / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)  # 0: slow, 1: fast
    return inv_freq * (keep + (1 - keep) / scaling["factor"])
