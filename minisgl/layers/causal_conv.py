"""A short convolution over time: each channel looks at its own last few values."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def causal_conv(seen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """silu of the weighted sum of each channel's last `taps` values.

    seen [batch, taps - 1 + tokens, channels] has the values of earlier tokens in front;
    weight [channels, taps], the newest last. Returns [batch, tokens, channels].
    """
    channels = weight.shape[0]
    out = F.conv1d(seen.transpose(1, 2), weight[:, None], groups=channels)
    return F.silu(out).transpose(1, 2)
