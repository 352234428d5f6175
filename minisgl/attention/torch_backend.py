"""Paged attention in plain PyTorch, for any device.

The keys of a request are scattered over the pool. Both forms gather them by slot and
hand them to `scaled_dot_product_attention`: prefill request by request, decode all
requests at once, padded to the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minisgl.attention.base import BaseAttnBackend
from minisgl.core import Batch
from minisgl.kvcache.mha_pool import MHAKVPool

# Rows of queries that attend together in prefill. The mask of a block has
# QUERY_BLOCK * length entries, so memory grows with the length and not its square.
QUERY_BLOCK = 256


@dataclass
class PrefillSpan:
    """One request of a prefill batch."""

    q_start: int  # its new tokens are [q_start, q_end) of the batch
    q_end: int
    cached_len: int  # and stand at positions cached_len, cached_len + 1, …
    slots: torch.Tensor  # [device_len]


@dataclass
class DecodeMetadata:
    """All requests of a decode batch, padded to the longest."""

    slots: torch.Tensor  # [batch * max_len], those of the padding are arbitrary
    mask: torch.Tensor | None  # [batch, 1, 1, max_len], 0 or -inf; None: no padding
    k: torch.Tensor  # [batch * max_len, kv_heads, dim], where a layer's keys and
    v: torch.Tensor  # values are gathered; all layers share them, so they stay warm


class TorchBackend(BaseAttnBackend):
    def __init__(
        self, kv_cache: MHAKVPool, page_table: torch.Tensor, dtype: torch.dtype
    ) -> None:
        self.kv_cache = kv_cache
        self.page_table = page_table
        self.dtype = dtype

    def prepare_metadata(self, batch: Batch) -> None:
        if batch.is_decode:
            batch.attn_metadata = self._decode_metadata(batch)
        else:
            batch.attn_metadata = self._prefill_spans(batch)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        batch: Batch,
    ) -> torch.Tensor:
        self.kv_cache.store_kv(k, v, batch.out_loc, layer_id)
        keys = self.kv_cache.k_cache(layer_id)
        values = self.kv_cache.v_cache(layer_id)
        if batch.is_decode:
            return attend_decode(q, keys, values, batch.attn_metadata)
        spans = batch.attn_metadata
        return torch.cat([attend_prefill(q, keys, values, span) for span in spans])

    def _prefill_spans(self, batch: Batch) -> list[PrefillSpan]:
        spans, start = [], 0
        for req in batch.reqs:
            end = start + req.extend_len
            slots = self.page_table[req.table_idx, : req.device_len]
            spans.append(PrefillSpan(start, end, req.cached_len, slots))
            start = end
        return spans

    def _decode_metadata(self, batch: Batch) -> DecodeMetadata:
        device = self.page_table.device
        lens = [req.device_len for req in batch.reqs]
        max_len = max(lens)
        rows = torch.tensor([req.table_idx for req in batch.reqs], device=device)
        slots = self.page_table[rows, :max_len].view(-1)
        mask = None
        if min(lens) < max_len:
            length = torch.tensor(lens, device=device)[:, None]
            padding = torch.arange(max_len, device=device) >= length
            mask = torch.zeros(padding.shape, dtype=self.dtype, device=device)
            mask = mask.masked_fill_(padding, -torch.inf)[:, None, None, :]
        _, kv_heads, dim = self.kv_cache.k_cache(0).shape
        shape = (len(slots), kv_heads, dim)
        k = torch.empty(shape, dtype=self.dtype, device=device)
        return DecodeMetadata(slots, mask, k, torch.empty_like(k))


def attend_prefill(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, span: PrefillSpan
) -> torch.Tensor:
    """Attention of one request's new tokens, a block of queries at a time.

    q [tokens, heads, dim] of the whole batch; keys, values [slots, kv_heads, dim].
    Returns [q_end - q_start, heads, dim].
    """
    k = keys[span.slots].transpose(0, 1)  # [kv_heads, device_len, dim]
    v = values[span.slots].transpose(0, 1)
    q = q[span.q_start : span.q_end].transpose(0, 1)  # [heads, new, dim]
    out = torch.empty_like(q)
    column = torch.arange(len(span.slots), device=q.device)
    for start in range(0, q.shape[1], QUERY_BLOCK):
        block = q[:, start : start + QUERY_BLOCK]
        first = span.cached_len + start  # position of the block's first query
        seen = first + block.shape[1]  # no query of the block looks further
        mask = column[:seen] <= column[first:seen, None]
        out[:, start : start + QUERY_BLOCK] = F.scaled_dot_product_attention(
            block[None],
            k[None, :, :seen],
            v[None, :, :seen],
            attn_mask=mask,
            enable_gqa=True,
        )[0]
    return out.transpose(0, 1)


def attend_decode(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, meta: DecodeMetadata
) -> torch.Tensor:
    """Attention of one new token per request, all requests in one call.

    q [batch, heads, dim]; keys, values [slots, kv_heads, dim]. Returns like q.
    """
    batch, heads, dim = q.shape
    kv_heads = keys.shape[1]
    torch.index_select(keys, 0, meta.slots, out=meta.k)
    torch.index_select(values, 0, meta.slots, out=meta.v)
    k = meta.k.view(batch, -1, kv_heads, dim).transpose(1, 2)
    v = meta.v.view(batch, -1, kv_heads, dim).transpose(1, 2)
    # The query heads that share a key head stand where a sequence of queries would.
    grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=meta.mask)
    return out.reshape(batch, heads, dim)
