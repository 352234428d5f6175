"""The operations in plain PyTorch."""

from __future__ import annotations

import torch


def fast_compare_key(x: torch.Tensor, y: torch.Tensor) -> int:
    """How many leading elements two one-dimensional integer tensors share.

    The textbook way: mark every difference, then take the first. It launches a few
    kernels whatever the length; the tree compares packed bytes instead, and is tested
    against this.
    """
    common_len = min(len(x), len(y))
    differences = (x[:common_len] != y[:common_len]).nonzero()
    return int(differences[0, 0]) if len(differences) else common_len
