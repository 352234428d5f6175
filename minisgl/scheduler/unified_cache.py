"""The pages of running requests, together with a unified radix cache.

The same duties as in `cache.py`, on a tree that can share more than KV pages. What a
request owns between two steps:

    0 .......... cache_protected_len ............ cached_len ... end of page
    |  the tree, locked by       |  the request alone               |
    |  the request's receipt     |                                  |

What it needs besides Full pages is the affair of a `Resource`, one for each component
that the tree has besides Full.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from minisgl.core import Req
from minisgl.errors import IntegrityError
from minisgl.kvcache.page_allocator import pages_of_slots
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.req_table import ReqTable
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import (
    EvictParams,
    IncLockRefResult,
    MatchPrefixParams,
)
from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache
from minisgl.scheduler.pages import PageManager, PendingReq
from minisgl.scheduler.resource import Resource


def _of_req(name: str) -> property:
    """An attribute that is the request's own."""
    return property(
        lambda self: getattr(self.req, name),
        lambda self, value: setattr(self.req, name, value),
    )


class CachedReq:
    """A request as the tree wants to see it, and what it holds there.

    `lock` protects its first `cache_protected_len` tokens, which end at `last_node`.
    """

    extra_key = None

    def __init__(
        self, req: Req, tables: ReqTable, page_size: int, lock: IncLockRefResult
    ) -> None:
        self.req = req
        self.tables = tables
        self.page_size = page_size
        self.lock = lock
        self.last_node = lock.node
        self.cache_protected_len = req.cached_len

    @property
    def token_ids(self) -> array[int]:
        """The tokens whose KV is computed. The last one sampled never is."""
        return self.req.input_ids[: self.req.cached_len]

    @property
    def slots(self) -> array[int]:
        """The row up to the end of the last page."""
        num_pages = -(-self.req.cached_len // self.page_size)
        return self.tables.read_slots(self.req.table_idx, 0, num_pages * self.page_size)

    def write_row(self, start: int, slots: array[int]) -> None:
        self.tables.write_slots(self.req.table_idx, start, slots)

    # for the window component
    swa_evicted_seqlen = _of_req("swa_evicted_seqlen")

    # for the state component; the request's state follows its forwards
    mamba_pool_idx = _of_req("mamba_pool_idx")
    mamba_track_idx = _of_req("mamba_track_idx")
    mamba_last_track_seqlen = _of_req("mamba_last_track_seqlen")

    @property
    def mamba_seqlen(self) -> int:
        return self.req.cached_len


class UnifiedCacheManager(PageManager):
    """A PageManager whose requests share prefixes through a UnifiedRadixCache.

    With Full alone it does what CacheManager does on a RadixPrefixCache. `resources`
    adds the components of a model with other layers, and admission then asks for room
    in each of them.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        tables: ReqTable,
        resources: Sequence[Resource] = (),
    ) -> None:
        super().__init__(num_pages, page_size, tables)
        self.resources = resources
        components = [resource.component for resource in resources]
        self.cache = UnifiedRadixCache(
            page_size, [FullComponent(self._free_slots), *components]
        )

    @property
    def num_available(self) -> int:
        """Pages that are free, or would be after evicting all that is not locked."""
        return self.allocator.num_free + self.cache.evictable_size() // self.page_size

    def check_fits(self, prompt_len: int, output_len: int) -> None:
        """As in PageManager, and in the pools of the resources."""
        super().check_fits(prompt_len, output_len)
        for resource in self.resources:
            resource.check_fits(prompt_len, output_len)

    def admit(self, pending: PendingReq, row: int, max_tokens: int) -> Req | None:
        """As in PageManager, reusing the longest cached prefix.

        The match is locked before there is talk of room, because what it covers must
        not count as evictable. The last token of a prompt is computed in any case: only
        that gives the next one.
        """
        key = RadixKey(pending.input_ids[:-1])
        match = self.cache.match_prefix(MatchPrefixParams(key))
        lock = self.cache.inc_lock_ref(match.last_device_node)
        extend_len = pending.prompt_len - match.cached_len
        live = list(self.live.values())
        if (
            extend_len > max_tokens
            or not self._has_room(pending, match.cached_len)
            or not all(
                r.has_room(pending, match.cached_len, live) for r in self.resources
            )
        ):
            self.cache.dec_lock_ref(lock.node, lock.to_dec_params())
            return None
        self.tables.write_slots(row, 0, match.device_indices)
        req = self._start(pending, row, match.cached_len, cache_handle=None)
        req.cache_handle = CachedReq(req, self.tables, self.page_size, lock)
        for resource in self.resources:
            resource.start(req, match)
        return req

    def allocate(self, reqs: list[Req]) -> None:
        """As in PageManager, and what is needed along with the new pages."""
        for resource in self.resources:
            for req in reqs:
                resource.trim(req)
        super().allocate(reqs)
        for resource in self.resources:
            for req in reqs:
                start, end = self._pages(req.cached_len), self._pages(req.device_len)
                if start < end:
                    resource.extend(req, self._row(req, start, end))

    def cache_unfinished(self, req: Req) -> None:
        """Share what a live request has computed, and read it from the tree now."""
        self.cache.cache_unfinished_req(req.cache_handle)

    def release(self, req: Req) -> None:
        """A request has ended: leave what it computed to the tree, free the rest."""
        del self.live[req.uid]
        self.cache.cache_finished_req(req.cache_handle)

    def check_integrity(self) -> None:
        """The tree agrees with itself, and everything is in exactly one place."""
        self.cache.check_integrity()
        for req in self.live.values():
            self._check_row(req)
        super().check_integrity()
        for resource in self.resources:
            resource.check_integrity(list(self.live.values()))

    def _check_row(self, req: Req) -> None:
        cached = path_slots(req.cache_handle.last_node)
        row = self.tables.read_slots(req.table_idx, 0, len(cached))
        if len(cached) != req.cache_handle.cache_protected_len or row != cached:
            raise IntegrityError(
                f"the row of request {req.uid} does not point at the pages that it "
                f"locks: {row.tolist()} against {cached.tolist()}"
            )

    def _take(self, num_pages: int) -> list[int]:
        missing = num_pages - self.allocator.num_free
        if missing > 0:
            self.cache.evict(EvictParams(num_tokens=missing * self.page_size))
        return super()._take(num_pages)

    def _free_slots(self, slots: array[int]) -> None:
        for resource in self.resources:
            resource.free_with(slots)
        self.allocator.free(pages_of_slots(slots, self.page_size))

    def _own_pages(self, req: Req) -> list[int]:
        first = req.cache_handle.cache_protected_len // self.page_size
        slots = self._row(req, first, self._pages(req.cached_len))
        return pages_of_slots(slots, self.page_size)

    def _row(self, req: Req, first_page: int, last_page: int) -> array[int]:
        start, end = first_page * self.page_size, last_page * self.page_size
        return self.tables.read_slots(req.table_idx, start, end)

    def _pages_in_use(self) -> list[tuple[int, str]]:
        held = [
            (page, "the prefix cache")
            for node in self.cache.nodes()
            for page in pages_of_slots(node.value(ComponentType.FULL), self.page_size)
        ]
        return held + super()._pages_in_use()


def path_slots(node: UnifiedTreeNode) -> array[int]:
    """The Full slots of the tokens from the root to the end of a node."""
    parts: list[Any] = []
    while node.parent is not None:
        parts.append(node.value(ComponentType.FULL))
        node = node.parent
    return array("i", b"".join(reversed(parts)))
