"""The pages of running requests.

A request comes in only if its whole life fits, so that no later step can run out of
pages: what it may still need counts as taken, although it gets its pages one by one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from minisgl.core import Req, SamplingParams
from minisgl.errors import IntegrityError, PromptError
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    pages_of_slots,
    slots_of_pages,
)
from minisgl.kvcache.req_table import ReqTable


@dataclass(eq=False)
class PendingReq:
    """A request that waits: all that is known before it gets a row and pages."""

    uid: int
    input_ids: array[int]
    output_len: int  # the most tokens it may generate
    sampling_params: SamplingParams

    @property
    def prompt_len(self) -> int:
        return len(self.input_ids)

    @property
    def max_len(self) -> int:
        return self.prompt_len + self.output_len


class PageManager:
    """Admits requests by pages, gives them pages as they grow, takes the pages back."""

    def __init__(self, num_pages: int, page_size: int, tables: ReqTable) -> None:
        self.allocator = PageAllocator(num_pages)
        self.page_size = page_size
        self.tables = tables
        self.live: dict[int, Req] = {}  # uid -> admitted and not yet released

    @property
    def num_available(self) -> int:
        """Pages that could be had now."""
        return self.allocator.num_free

    @property
    def num_reserved(self) -> int:
        """Pages that live requests have not taken yet, but may before they end."""
        return sum(
            self._pages(req.max_device_len) - self._pages(req.cached_len)
            for req in self.live.values()
        )

    def fits_pool(self, max_len: int) -> bool:
        """Whether a request of `max_len` tokens could run if it were alone."""
        return self._pages(max_len) <= self.allocator.num_pages

    def check_fits(self, prompt_len: int, output_len: int) -> None:
        """Raises PromptError if such a request could not even run alone."""
        if not self.fits_pool(prompt_len + output_len):
            pool = self.allocator.num_pages * self.page_size
            raise PromptError(
                f"{prompt_len} tokens of prompt and up to {output_len} of answer do "
                f"not fit in a pool of {pool} tokens; lower max_tokens or enlarge it"
            )

    def admit(self, pending: PendingReq, row: int, max_tokens: int) -> Req | None:
        """Let a request in if its life fits and it computes at most `max_tokens` now.

        Returns None, and changes nothing, if not.
        """
        if pending.prompt_len > max_tokens or not self._has_room(pending, 0):
            return None
        return self._start(pending, row, cached_len=0, cache_handle=None)

    def allocate(self, reqs: list[Req]) -> None:
        """Make sure that each request has pages up to its `device_len`.

        A request holds whole pages up to its `cached_len`, so the pages of a new one
        start where that last page ends.
        """
        missing = [
            self._pages(req.device_len) - self._pages(req.cached_len) for req in reqs
        ]
        pages = self._take(sum(missing))
        for req, count in zip(reqs, missing, strict=True):
            if count:
                start = self._pages(req.cached_len) * self.page_size
                slots = slots_of_pages(pages[:count], self.page_size)
                self.tables.write_slots(req.table_idx, start, slots)
                pages = pages[count:]

    def release(self, req: Req) -> None:
        """A request has ended: all that it holds is given back."""
        del self.live[req.uid]
        self.allocator.free(self._own_pages(req))

    def check_integrity(self) -> None:
        """Every page is in exactly one place. Raises IntegrityError naming one that
        is not."""
        places = dict.fromkeys(self.allocator.free_pages, "free")
        for page, owner in self._pages_in_use():
            if page in places:
                raise IntegrityError(
                    f"page {page} is held by {owner}, but also by {places[page]}"
                )
            places[page] = owner
        if len(places) < self.allocator.num_pages:
            lost = min(set(range(self.allocator.num_pages)) - places.keys())
            raise IntegrityError(f"page {lost} is neither free nor in use")

    def _has_room(self, pending: PendingReq, cached_len: int) -> bool:
        needed = self._pages(pending.max_len) - cached_len // self.page_size
        return needed + self.num_reserved <= self.num_available

    def _start(
        self, pending: PendingReq, row: int, cached_len: int, cache_handle: Any
    ) -> Req:
        req = Req(
            input_ids=pending.input_ids,
            table_idx=row,
            cached_len=cached_len,
            output_len=pending.output_len,
            uid=pending.uid,
            sampling_params=pending.sampling_params,
            cache_handle=cache_handle,
        )
        self.tables.write_tokens(row, 0, req.input_ids)
        self.live[req.uid] = req
        return req

    def _take(self, num_pages: int) -> list[int]:
        return self.allocator.allocate(num_pages)

    def _own_pages(self, req: Req) -> list[int]:
        """The pages that this request alone holds, in order."""
        slots = self.tables.read_slots(req.table_idx, 0, req.cached_len)
        return pages_of_slots(slots, self.page_size)

    def _pages_in_use(self) -> list[tuple[int, str]]:
        return [
            (page, f"request {req.uid}")
            for req in self.live.values()
            for page in self._own_pages(req)
        ]

    def _pages(self, num_tokens: int) -> int:
        return num_pages_for(num_tokens, self.page_size)
