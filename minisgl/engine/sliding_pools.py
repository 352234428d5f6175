"""The pools of a model with sliding layers: what a page costs, and how many of each."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from minisgl.attention.sliding_window import SlidingWindowBackend
from minisgl.core import Req
from minisgl.engine.pools import Pools
from minisgl.kvcache.page_allocator import num_pages_for
from minisgl.kvcache.swa_mapping import left_window_len
from minisgl.kvcache.swa_pool import SLIDING, SWAKVPool

# Window pages for each Full page, where their number is not given. A request that is
# twice as long as its window needs no more.
SWA_RATIO = 0.5


class SlidingPools(Pools):
    """A Full page for every page of a request, and a window page for the last ones."""

    def allocate_memory(self) -> None:
        model, config = self.model, self.config
        self.window = model.hf.sliding_window
        num_sliding = model.layer_types.count(SLIDING)
        self.full_bytes = self.kv_bytes(model.num_layers - num_sliding)
        self.swa_bytes = self.kv_bytes(num_sliding)
        self.num_pages = self.fit_pages(
            self.full_bytes + ceil(SWA_RATIO * self.swa_bytes)
        )
        self.num_swa_pages = config.num_swa_page_override or self._default_swa_pages()
        self.kv_cache = SWAKVPool(
            layer_types=model.layer_types,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            num_pages=self.num_pages,
            num_swa_pages=self.num_swa_pages,
            page_size=config.page_size,
            dtype=self.dtype,
            device=self.tables.device,
        )
        self.swa = self.kv_cache.mapping
        self.attn_backend = SlidingWindowBackend(
            self.kv_cache, self.tables.page_table, self.dtype, self.window
        )

    def extend(self, req: Req, full_slots: Sequence[int]) -> None:
        self.swa.allocate(full_slots)

    def trim(self, req: Req) -> None:
        page_size = self.config.page_size
        start = req.swa_evicted_seqlen
        end = left_window_len(req.cached_len, self.window, page_size)
        self.swa.free(self.tables.read_slots(req.table_idx, start, end))
        req.swa_evicted_seqlen = end

    def reset(self) -> None:
        self.swa.reset()

    def _default_swa_pages(self) -> int:
        """Half as many as Full pages, or what one window and a new page need."""
        least = num_pages_for(self.window, self.config.page_size) + 2
        return min(self.num_pages, max(least, ceil(SWA_RATIO * self.num_pages)))
