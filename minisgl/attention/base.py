"""What an attention backend promises to a model."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from minisgl.core import Batch


class BaseAttnBackend(ABC):
    """Attends to the KV pool of the context, by way of its page table."""

    @abstractmethod
    def prepare_metadata(self, batch: Batch) -> None:
        """Compute once per forward what all layers need; set `batch.attn_metadata`.

        The rows of the page table hold the slots of positions [0, device_len) by now.
        """

    @abstractmethod
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        batch: Batch,
    ) -> torch.Tensor:
        """Store k and v at `batch.out_loc`, then attend causally.

        q [tokens, heads, dim], k and v [tokens, kv_heads, dim] are those of the new
        tokens. Returns [tokens, heads, dim], contiguous. The new token at position p
        sees the keys of positions 0 to p of its own request, whether they were written
        by this forward, an earlier one, or another request that had the same prefix.
        """
