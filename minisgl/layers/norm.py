"""Root-mean-square normalisation (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.models.weight import WeightReader


class RMSNorm:
    """x / sqrt(mean(x²) + eps) * weight, over the last dimension."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps

    @classmethod
    def load(cls, weights: WeightReader, name: str, size: int, eps: float) -> RMSNorm:
        return cls(weights.take(f"{name}.weight", size), eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[…, size] -> the same shape."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
