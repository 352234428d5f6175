"""Paged attention for a model whose layers are of two kinds: full and sliding.

A query at position p of a sliding layer sees the positions p - window + 1 to p, itself
included. What lies before may be gone, and so is not even gathered: a decode step reads
`window` tokens of a request, however long it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minisgl.attention.base import BaseAttnBackend
from minisgl.attention.torch_backend import (
    QUERY_BLOCK,
    DecodeMetadata,
    PrefillSpan,
    TorchBackend,
    attend_decode,
    attend_prefill,
)
from minisgl.core import Batch
from minisgl.kvcache.swa_pool import SWAKVPool


@dataclass
class WindowSpan(PrefillSpan):
    """One request of a prefill batch, for the sliding layers.

    `slots` are those of the window pool, from position `first_pos` on: as far back as
    the first new token sees.
    """

    first_pos: int
    window: int


@dataclass
class KindMetadata:
    """What all layers of one kind share in a forward."""

    out_loc: torch.Tensor  # [tokens], slots of that kind's pool
    reads: list[PrefillSpan] | DecodeMetadata


@dataclass
class HybridMetadata:
    full: KindMetadata
    sliding: KindMetadata


class SlidingWindowBackend(BaseAttnBackend):
    """Full layers read the Full pool as ever; sliding layers read the window pool."""

    def __init__(
        self,
        kv_cache: SWAKVPool,
        page_table: torch.Tensor,
        dtype: torch.dtype,
        window: int,
    ) -> None:
        self.kv_cache = kv_cache
        self.page_table = page_table
        self.dtype = dtype
        self.window = window
        self._full = TorchBackend(kv_cache.full, page_table, dtype)

    def prepare_metadata(self, batch: Batch) -> None:
        """The tokens of every window, and the new ones, have window slots by now."""
        self.kv_cache.sync()
        self._full.prepare_metadata(batch)
        full = KindMetadata(batch.out_loc, batch.attn_metadata)
        reads = self._decode_window(batch) if batch.is_decode else self._spans(batch)
        sliding = KindMetadata(self.kv_cache.full_to_swa[batch.out_loc], reads)
        batch.attn_metadata = HybridMetadata(full, sliding)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        batch: Batch,
    ) -> torch.Tensor:
        is_sliding, index = self.kv_cache.places[layer_id]
        pool = self.kv_cache.window if is_sliding else self.kv_cache.full
        meta = batch.attn_metadata.sliding if is_sliding else batch.attn_metadata.full
        pool.store_kv(k, v, meta.out_loc, index)
        keys, values = pool.k_cache(index), pool.v_cache(index)
        if batch.is_decode:
            return attend_decode(q, keys, values, meta.reads)
        attend = attend_window if is_sliding else attend_prefill
        return torch.cat([attend(q, keys, values, span) for span in meta.reads])

    def _spans(self, batch: Batch) -> list[WindowSpan]:
        spans, start = [], 0
        for req in batch.reqs:
            end = start + req.extend_len
            first_pos = max(req.cached_len - self.window + 1, 0)
            full_slots = self.page_table[req.table_idx, first_pos : req.device_len]
            slots = self.kv_cache.full_to_swa[full_slots]
            spans.append(
                WindowSpan(start, end, req.cached_len, slots, first_pos, self.window)
            )
            start = end
        return spans

    def _decode_window(self, batch: Batch) -> DecodeMetadata:
        device = self.page_table.device
        seen = [min(req.device_len, self.window) for req in batch.reqs]
        width = max(seen)
        first = [req.device_len - n for req, n in zip(batch.reqs, seen, strict=True)]
        rows = [req.table_idx for req in batch.reqs]
        columns = torch.tensor([rows, first, seen], device=device).unsqueeze(-1)
        row, first_pos, num_seen = columns  # [batch, 1] each
        offset = torch.arange(width, device=device)
        slots = self.kv_cache.full_to_swa[self.page_table[row, first_pos + offset]]
        mask = None
        if min(seen) < width:
            padding = offset >= num_seen
            slots = slots.masked_fill(padding, 0)  # any slot that exists
            mask = torch.zeros(padding.shape, dtype=self.dtype, device=device)
            mask = mask.masked_fill_(padding, -torch.inf)[:, None, None, :]
        _, kv_heads, dim = self.kv_cache.window.k_cache(0).shape
        k = torch.empty((slots.numel(), kv_heads, dim), dtype=self.dtype, device=device)
        return DecodeMetadata(slots.view(-1), mask, k, torch.empty_like(k))


def attend_window(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, span: WindowSpan
) -> torch.Tensor:
    """Attention of one request's new tokens, each to its window, a block at a time.

    q [tokens, heads, dim] of the whole batch; keys, values [slots, kv_heads, dim].
    Returns [q_end - q_start, heads, dim]. Work and memory of a block depend on the
    window, not on the length of the request.
    """
    k = keys.index_select(0, span.slots).transpose(0, 1)  # [kv_heads, read, dim]
    v = values.index_select(0, span.slots).transpose(0, 1)
    q = q[span.q_start : span.q_end].transpose(0, 1)  # [heads, new, dim]
    out = torch.empty_like(q)
    for start in range(0, q.shape[1], QUERY_BLOCK):
        block = q[:, start : start + QUERY_BLOCK]
        first = span.cached_len + start  # position of the block's first query
        end = first + block.shape[1]
        oldest = max(first - span.window + 1, 0)
        read = slice(oldest - span.first_pos, end - span.first_pos)
        mask = window_mask(first, end, oldest, span.window, q.device)
        out[:, start : start + QUERY_BLOCK] = F.scaled_dot_product_attention(
            block[None],
            k[None, :, read],
            v[None, :, read],
            attn_mask=mask,
            enable_gqa=True,
        )[0]
    return out.transpose(0, 1)


def window_mask(
    first: int, end: int, oldest: int, window: int, device: torch.device
) -> torch.Tensor:
    """[end - first, end - oldest]: whether a query may see a key.

    The queries stand at positions [first, end), the keys at [oldest, end).
    """
    query = torch.arange(first, end, device=device)[:, None]
    key = torch.arange(oldest, end, device=device)
    return (key <= query) & (key > query - window)
