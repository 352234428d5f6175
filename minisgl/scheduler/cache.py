"""The pages of running requests, together with a prefix cache.

Who owns which region of a request's tokens, between two steps:

    0 .................. handle.cached_len ............ cached_len ... end of page
    |  the prefix cache,                  |  the request alone                   |
    |  locked by the request's handle     |                                      |

When a request's tokens are inserted, the cache may turn out to hold a part of them
already, because another request brought them first:

    0 .......... old handle ............ in cache ............ new handle ... cached_len
    |  the cache's, as before           |                     |             |
    |            |  computed twice: the |  handed over to the |  not a whole page:
    |            |  request's copy is freed      cache        |  stays the request's

The second copy of a token is found by comparing slots, position by position: a page is
freed only if the cache has another one in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.core import Req
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import BaseCacheHandle, BasePrefixCache
from minisgl.kvcache.page_allocator import pages_of_slots
from minisgl.kvcache.req_table import ReqTable
from minisgl.scheduler.pages import PageManager, PendingReq


@dataclass
class Insertion:
    """What came of inserting a request's tokens, and the pages left to the request."""

    handle: BaseCacheHandle
    duplicates: list[int]  # pages whose tokens the cache holds in other pages
    tail: list[int]  # pages behind the handle: the last one, if it is not full


class CacheManager(PageManager):
    """A PageManager whose requests find, reuse and leave behind cached prefixes."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        tables: ReqTable,
        prefix_cache: BasePrefixCache,
    ) -> None:
        super().__init__(num_pages, page_size, tables)
        self.prefix_cache = prefix_cache

    @property
    def num_available(self) -> int:
        """Pages that are free, or would be after evicting all that is not locked."""
        evictable = self.prefix_cache.size_info.evictable_size
        return self.allocator.num_free + evictable // self.page_size

    def admit(self, pending: PendingReq, row: int, max_tokens: int) -> Req | None:
        """As in PageManager, reusing the longest cached prefix.

        The last token of a prompt is never taken from the cache: the cache has no
        logits, and without them there is no next token. The match is locked before
        there is talk of room, because what it covers must not count as evictable.
        """
        match = self.prefix_cache.match_prefix(pending.input_ids[:-1])
        handle = match.cuda_handle
        self.prefix_cache.lock_handle(handle)
        extend_len = pending.prompt_len - handle.cached_len
        if extend_len > max_tokens or not self._has_room(pending, handle.cached_len):
            self.prefix_cache.lock_handle(handle, unlock=True)
            return None
        self.tables.write_slots(row, 0, handle.matched_slots())
        return self._start(pending, row, handle.cached_len, handle)

    def cache_unfinished(self, req: Req) -> None:
        """Share what a live request has computed, and go on reading it from the cache.

        The request's row is pointed at the cache's pages before its own copies are
        freed, and the new prefix is locked before the old one is released: at no
        moment can a page that the request reads be evicted or handed out.
        """
        insert = self._insert(req)
        start, handle = req.cache_handle.cached_len, insert.handle
        slots = handle.matched_slots()[start:]
        self.tables.write_slots(req.table_idx, start, slots)
        self.prefix_cache.lock_handle(handle)
        self.prefix_cache.lock_handle(req.cache_handle, unlock=True)
        req.cache_handle = handle
        self.allocator.free(insert.duplicates)

    def release(self, req: Req) -> None:
        """A request has ended: leave what it computed to the cache, free the rest.

        The last sampled token is not part of that: it never went through the model.
        """
        del self.live[req.uid]
        insert = self._insert(req)
        self.prefix_cache.lock_handle(req.cache_handle, unlock=True)
        self.allocator.free(insert.duplicates + insert.tail)

    def check_integrity(self) -> None:
        """The cache agrees with itself, and every page is in exactly one place."""
        self.prefix_cache.check_integrity()
        for req in self.live.values():
            cached = req.cache_handle.matched_slots()
            row = self.tables.read_slots(req.table_idx, 0, len(cached))
            if row != cached:
                raise IntegrityError(
                    f"the row of request {req.uid} does not point at the pages that "
                    f"its handle covers: {row.tolist()} against {cached.tolist()}"
                )
        super().check_integrity()

    def _insert(self, req: Req) -> Insertion:
        """Insert all that the request has computed."""
        slots = self.tables.read_slots(req.table_idx, 0, req.cached_len)
        result = self.prefix_cache.insert_prefix(req.input_ids[: req.cached_len], slots)
        pages = pages_of_slots(slots, self.page_size)
        held = pages_of_slots(result.handle.matched_slots(), self.page_size)
        return Insertion(
            handle=result.handle,
            duplicates=[
                page for page, other in zip(pages, held, strict=False) if page != other
            ],
            tail=pages[len(held) :],
        )

    def _take(self, num_pages: int) -> list[int]:
        missing = num_pages - self.allocator.num_free
        if missing > 0:
            evicted = self.prefix_cache.evict(missing * self.page_size).tolist()
            self.allocator.free(pages_of_slots(evicted, self.page_size))
        return super()._take(num_pages)

    def _own_pages(self, req: Req) -> list[int]:
        start = req.cache_handle.cached_len
        slots = self.tables.read_slots(req.table_idx, start, req.cached_len)
        return pages_of_slots(slots, self.page_size)

    def _pages_in_use(self) -> list[tuple[int, str]]:
        held = pages_of_slots(self.prefix_cache.held_slots(), self.page_size)
        return [(page, "the prefix cache") for page in held] + super()._pages_in_use()
