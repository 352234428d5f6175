"""y = x Wᵀ + b."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.models.weight import WeightReader


class Linear:
    """A product with `weight` [out, in], and maybe a `bias` [out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def load(
        cls,
        weights: WeightReader,
        parts: list[tuple[str, int]],
        in_size: int,
        bias: bool = False,
    ) -> Linear:
        """Stack the layers of `(name, out_size)` into one."""

        def stacked(kind: str, *row_shape: int) -> torch.Tensor:
            named = [(f"{name}.{kind}", out_size) for name, out_size in parts]
            return weights.take_rows(named, *row_shape)

        return cls(stacked("weight", in_size), stacked("bias") if bias else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, in] -> [tokens, out]."""
        return F.linear(x, self.weight, self.bias)
