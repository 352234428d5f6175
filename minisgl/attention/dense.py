"""Attention without a cache: the plain form that everything later is compared with."""

from __future__ import annotations

import torch

from minisgl.core import Batch


class DenseAttention:
    """Every request attends to its own tokens, all of which are in the batch."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        batch: Batch,
    ) -> torch.Tensor:
        """q [tokens, heads, dim], k and v [tokens, kv_heads, dim] -> like q."""
        assert all(r.cached_len == 0 for r in batch.reqs), "there is no cache"
        lens = [r.extend_len for r in batch.reqs]
        parts = zip(q.split(lens), k.split(lens), v.split(lens), strict=True)
        return torch.cat([dense_attention(*part) for part in parts])


def dense_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one request: softmax(q kᵀ / sqrt(dim)) v.

    q [n, heads, dim] are the last n of the m tokens of k, v [m, kv_heads, dim].
    Returns [n, heads, dim]. Written out, for n * m * heads numbers of memory.
    """
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    k = k.repeat_interleave(heads // kv_heads, dim=1)
    v = v.repeat_interleave(heads // kv_heads, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", q, k) / dim**0.5
    row = torch.arange(m - n, m, device=q.device)[:, None]
    future = torch.arange(m, device=q.device) > row
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
    return torch.einsum("hnm,mhd->nhd", weights, v)
