"""The window pages of running requests, for models with sliding layers.

A request computes its prompt in one go and needs a window page for each of its pages
then. What leaves the window afterwards is freed while the request goes on:

    0 ......... cache_protected_len .... frontier .... cached_len ... end of page
    |  the tree's; its window  |  freed, page  |  the request's     |
    |  is locked as long as    |  by page      |                    |
    |  the request sees it     |               |                    |
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from minisgl.core import Req
from minisgl.errors import IntegrityError, PromptError
from minisgl.kvcache.page_allocator import num_pages_for, pages_of_slots
from minisgl.kvcache.req_table import ReqTable
from minisgl.kvcache.swa_mapping import NO_PAGE, SWAMapping
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import DecLockRefParams, EvictParams
from minisgl.kvcache.unified.swa_component import SWAComponent
from minisgl.scheduler.pages import PendingReq
from minisgl.scheduler.resource import Resource


class WindowPages(Resource):
    """Gives each new page of a request a window page."""

    def __init__(
        self, mapping: SWAMapping, window: int, page_size: int, tables: ReqTable
    ) -> None:
        self.mapping = mapping
        self.page_size = page_size
        self.tables = tables
        self.component = SWAComponent(mapping, window)
        # the window, the page that is being filled, and the one to come
        self._running_pages = num_pages_for(window, page_size) + 1

    def check_fits(self, prompt_len: int, output_len: int) -> None:
        needed = self._life_pages(prompt_len, prompt_len + output_len)
        num_pages = self.mapping.allocator.num_pages
        if needed > num_pages:
            raise PromptError(
                f"{prompt_len} tokens of prompt and up to {output_len} of answer need "
                f"{needed} window pages of {self.page_size} tokens, and there are "
                f"{num_pages}; shorten the prompt or raise num_swa_page_override"
            )

    def has_room(
        self, pending: PendingReq, cached_len: int, live: Sequence[Req]
    ) -> bool:
        needed = self._life_pages(pending.prompt_len, pending.max_len)
        needed -= cached_len // self.page_size
        reserved = sum(map(self._reserved, live))
        evictable = self.component.evictable_size // self.page_size
        return needed + reserved <= self.mapping.num_free + evictable

    def trim(self, req: Req) -> None:
        """Free what left the window; the tree's part of it is no longer locked."""
        cached = req.cache_handle
        frontier = self.component.max_evicted_seqlen(req.cached_len)
        if frontier < cached.cache_protected_len:
            return
        start = max(req.swa_evicted_seqlen, cached.cache_protected_len)
        self.mapping.free(self.tables.read_slots(req.table_idx, start, frontier))
        req.swa_evicted_seqlen = frontier
        if self.component in cached.lock.held:
            params = DecLockRefParams(cached.lock, ComponentType.SWA)
            self.component.cache.dec_lock_ref(cached.last_node, params)

    def extend(self, req: Req, full_slots: array[int]) -> None:
        num_missing = len(full_slots) // self.page_size - self.mapping.num_free
        if num_missing > 0:
            params = EvictParams(swa_num_tokens=num_missing * self.page_size)
            self.component.cache.evict(params)
        self.mapping.allocate(full_slots)

    def free_with(self, full_slots: array[int]) -> None:
        self.mapping.free(full_slots)

    def check_integrity(self, live: Sequence[Req]) -> None:
        """A Full page has a window page just where the tree or a request says so."""
        self.mapping.check_integrity()
        owners = {}
        for node in self.component.cache.nodes():
            for page in pages_of_slots(
                node.value(ComponentType.SWA) or (), self.page_size
            ):
                owners[page] = f"{node} of the prefix cache"
        for req in live:
            end = num_pages_for(req.cached_len, self.page_size) * self.page_size
            slots = self.tables.read_slots(req.table_idx, self._own_start(req), end)
            for page in pages_of_slots(slots, self.page_size):
                owners[page] = f"request {req.uid}"
        swa_pages = self.mapping.swa_pages(range(self.mapping.num_pages))
        for page, swa_page in enumerate(swa_pages):
            if (swa_page != NO_PAGE) != (page in owners):
                owner = owners.get(page, "nobody")
                raise IntegrityError(
                    f"the window page of Full page {page} is {swa_page}, and {owner} "
                    "needs it"
                )

    def _life_pages(self, prompt_len: int, max_len: int) -> int:
        """The most pages a request has at once, with those of its prompt."""
        return prompt_len // self.page_size + self._answer_pages(prompt_len, max_len)

    def _answer_pages(self, prompt_len: int, max_len: int) -> int:
        """The most at once behind the whole pages of the prompt, which the tree has."""
        num_pages = num_pages_for(max_len, self.page_size)
        return min(self._running_pages, num_pages - prompt_len // self.page_size)

    def _reserved(self, req: Req) -> int:
        """What a request may still take, beyond what it holds."""
        num_held = num_pages_for(req.cached_len, self.page_size)
        if req.cached_len < req.prompt_len:
            return self._life_pages(req.prompt_len, req.max_device_len) - num_held
        num_held -= self._own_start(req) // self.page_size
        return self._answer_pages(req.prompt_len, req.max_device_len) - num_held

    def _own_start(self, req: Req) -> int:
        """From here on the window pages are the request's own."""
        return max(req.swa_evicted_seqlen, req.cache_handle.cache_protected_len)
