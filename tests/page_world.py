"""Pages and requests without an engine: what a forward would do is done by hand.

Every slot remembers the whole prefix it was computed for, so that a request which
reads a page that was freed, evicted or never computed is found out at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minisgl.core import Req, SamplingParams
from minisgl.kvcache.page_allocator import PageAllocator
from minisgl.scheduler.pages import PageManager, PendingReq
from minisgl.scheduler.table import TableManager


class FakeTables:
    """The rows of a ReqTable, in lists."""

    def __init__(self, num_rows: int, max_len: int) -> None:
        self.slots = [array("i", [-1] * max_len) for _ in range(num_rows)]
        self.tokens = [array("i", [-1] * max_len) for _ in range(num_rows)]

    def write_slots(self, row: int, start: int, slots: Sequence[int]) -> None:
        assert start + len(slots) <= len(self.slots[row])
        self.slots[row][start : start + len(slots)] = array("i", slots)

    def read_slots(self, row: int, start: int, end: int) -> array[int]:
        return self.slots[row][start:end]

    def write_tokens(self, row: int, start: int, tokens: Sequence[int]) -> None:
        self.tokens[row][start : start + len(tokens)] = array("i", tokens)


class WatchedAllocator(PageAllocator):
    """Lets no page go that somebody still reads, and remembers what it handed out."""

    def __init__(self, num_pages: int, pages_read: Callable[[], set[int]]) -> None:
        super().__init__(num_pages)
        self.pages_read = pages_read
        self.handed_out: list[int] = []

    def allocate(self, num_pages: int) -> list[int]:
        pages = super().allocate(num_pages)
        self.handed_out += pages
        return pages

    def free(self, pages: Iterable[int]) -> None:
        pages = list(pages)
        still_read = self.pages_read() & set(pages)
        assert not still_read, (
            f"pages {still_read} are freed while a request reads them"
        )
        super().free(pages)


class WatchedCache:
    """The prefix cache of a CacheManager, with a note of what happens to it."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.protected: list[int] = []  # protected tokens after each lock and unlock
        self.evicted: list[int] = []  # slots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def lock_handle(self, handle: Any, unlock: bool = False) -> None:
        self._cache.lock_handle(handle, unlock)
        self.protected.append(self._cache.size_info.protected_size)

    def evict(self, size: int) -> Any:
        slots = self._cache.evict(size)
        self.evicted += slots.tolist()
        return slots


def watch(pages: Any) -> WatchedCache:
    """Watch the prefix cache of this CacheManager from now on."""
    pages.prefix_cache = WatchedCache(pages.prefix_cache)
    return pages.prefix_cache


class World:
    """A PageManager, or with a `prefix_cache` a CacheManager, and its requests."""

    def __init__(
        self,
        num_pages: int,
        page_size: int = 1,
        prefix_cache: Any = None,
        num_rows: int = 8,
        max_len: int = 256,
    ) -> None:
        self.page_size = page_size
        self.cache = prefix_cache
        self.tables = FakeTables(num_rows, max_len)
        self.table = TableManager(num_rows)
        self.pages = self._manager(num_pages, prefix_cache)
        self.pages.allocator = WatchedAllocator(num_pages, self.pages_read)
        self.kv: dict[int, tuple[int, ...]] = {}  # slot -> tokens it was computed for
        self.num_requests = 0

    def _manager(self, num_pages: int, prefix_cache: Any) -> PageManager:
        if prefix_cache is None:
            return PageManager(num_pages, self.page_size, self.tables)
        from minisgl.scheduler.cache import CacheManager

        return CacheManager(num_pages, self.page_size, self.tables, prefix_cache)

    # --- what a scheduler does ----------------------------------------------------

    def admit(
        self, prompt: Sequence[int], output_len: int = 1, max_tokens: int = 10_000
    ) -> Req | None:
        """Let a request in, or say None and leave everything as it was."""
        before = self.sizes, self.pages.num_available, self.table.num_free
        self.num_requests += 1
        pending = PendingReq(
            self.num_requests, array("i", prompt), output_len, SamplingParams()
        )
        row = self.table.allocate()
        req = self.pages.admit(pending, row, max_tokens)
        if req is None:
            self.table.free(row)
            after = self.sizes, self.pages.num_available, self.table.num_free
            assert after == before, "a refusal has changed something"
        return req

    def forward(self, *reqs: Req, token: int = 99) -> None:
        """Give each its pages, write the KV of its new tokens, read all, sample."""
        self.pages.allocate(list(reqs))
        for req in reqs:
            slots = self.row(req, req.device_len)
            for position in range(req.cached_len, req.device_len):
                self.kv[slots[position]] = tuple(req.input_ids[: position + 1])
        for req in reqs:
            self.check_reads(req, req.device_len)
        for req in reqs:
            if req.is_chunk:
                req.complete_chunk()
            else:
                req.complete_one()
                req.append_host(token)

    def prefill(self, *reqs: Req, token: int = 99) -> None:
        """A prefill batch; each request then shares what it computed."""
        self.forward(*reqs, token=token)
        for req in reqs:
            self.pages.cache_unfinished(req)

    def release(self, *reqs: Req) -> None:
        """The requests end, or are aborted."""
        for req in reqs:
            self.pages.release(req)
            self.table.free(req.table_idx)

    def run(self, prompt: Sequence[int], answer: Sequence[int] = (99,)) -> None:
        """A whole life: prefill, a decode step per further token, release."""
        req = self.admit(prompt, output_len=len(answer))
        assert req is not None, f"no room for {prompt}"
        self.forward(req, token=answer[0])
        for token in answer[1:]:
            if self.cache and req.cached_len == len(prompt):
                self.pages.cache_unfinished(req)
            self.forward(req, token=token)
        self.release(req)
        self.check()

    # --- what there is to see -----------------------------------------------------

    @property
    def free(self) -> list[int]:
        """The free pages, sorted."""
        return sorted(self.pages.allocator.free_pages)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Tokens of the pool that are (free, evictable, protected)."""
        free = self.pages.allocator.num_free * self.page_size
        return (free, *(self.cache.size_info if self.cache else (0, 0)))

    def row(self, req: Req, length: int | None = None) -> list[int]:
        """The slots of a request's computed tokens, or of its first `length`."""
        length = req.cached_len if length is None else length
        return self.tables.read_slots(req.table_idx, 0, length).tolist()

    def pages_read(self) -> set[int]:
        """The pages that live requests read in their next step."""
        return {
            slot // self.page_size
            for req in self.pages.live.values()
            for slot in self.row(req)
        }

    # --- what must always hold ----------------------------------------------------

    def check_reads(self, req: Req, length: int) -> None:
        for position, slot in enumerate(self.row(req, length)):
            wanted, found = tuple(req.input_ids[: position + 1]), self.kv[slot]
            assert found == wanted, f"{req}: slot {slot} holds {found}, not {wanted}"

    def check(self) -> None:
        """Every live request reads its own prefix, and every page is in one place."""
        for req in self.pages.live.values():
            self.check_reads(req, req.cached_len)
        self.pages.check_integrity()
        own = [len(self.pages._own_pages(req)) for req in self.pages.live.values()]
        pool = self.pages.allocator.num_pages * self.page_size
        assert sum(self.sizes) + sum(own) * self.page_size == pool, (self.sizes, own)
        assert not self.pages_read() & set(self.free)
