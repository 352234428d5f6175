"""Inserts the last sampled token as well, although it was never computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minisgl.kvcache.page_allocator import pages_of_slots

if TYPE_CHECKING:
    from minisgl.core import Req
    from minisgl.kvcache.base import BaseCacheHandle


@dataclass
class Insertion:
    """What came of inserting a request's tokens, and the pages left to the request."""

    handle: BaseCacheHandle
    duplicates: list[int]  # pages whose tokens the cache holds in other pages
    tail: list[int]  # pages behind the handle: the last one, if it is not full


class CacheManager:
    """Of the engine's class, the part that `_insert` needs."""

    def __init__(self, page_size, tables, prefix_cache) -> None:
        self.page_size = page_size
        self.tables = tables
        self.prefix_cache = prefix_cache

    def _insert(self, req: Req) -> Insertion:
        """Insert all that the request has computed: its first `cached_len` tokens.

        `self.tables.read_slots(req.table_idx, start, end)` gives the slots of a row,
        `self.prefix_cache.insert_prefix(tokens, slots)` an InsertResult, and
        `pages_of_slots(slots, page_size)` the pages of slots. Frees nothing itself.
        """
        num_tokens = len(req.input_ids)
        slots = self.tables.read_slots(req.table_idx, 0, num_tokens)
        result = self.prefix_cache.insert_prefix(req.input_ids, slots)
        pages = pages_of_slots(slots, self.page_size)
        held = pages_of_slots(result.handle.matched_slots(), self.page_size)
        return Insertion(
            handle=result.handle,
            duplicates=[
                page for page, other in zip(pages, held, strict=False) if page != other
            ],
            tail=pages[len(held) :],
        )
