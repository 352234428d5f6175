"""Root-mean-square normalisation whose weights are kept as the distance from one."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.models.weight import WeightReader


class CenteredRMSNorm:
    """x / sqrt(mean(x²) + eps) * (1 + w), over the last dimension.

    Computed in float32 whatever the dtype of x, since 1 + w does not fit in 16 bits.
    """

    def __init__(self, weight: torch.Tensor, eps: float, scale: float = 1.0) -> None:
        self.weight = (1 + weight.float()) * scale
        self.eps = eps

    @classmethod
    def load(
        cls, weights: WeightReader, name: str, size: int, eps: float, scale: float = 1.0
    ) -> CenteredRMSNorm:
        """With a `scale`, all results are multiplied by it."""
        return cls(weights.take(f"{name}.weight", size), eps, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[…, size] -> the same shape and dtype."""
        out = F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)
        return out.to(x.dtype)
