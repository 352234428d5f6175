"""Reserves all pages of a live request, also those it has taken already."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from minisgl.core import Req, SamplingParams
from minisgl.kvcache.page_allocator import PageAllocator, num_pages_for


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
    """Admits requests by pages. Three members are to be written, the rest is given."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.allocator = PageAllocator(num_pages)
        self.page_size = page_size
        self.live: dict[int, Req] = {}  # uid -> admitted and not yet released

    @property
    def num_available(self) -> int:
        """Pages that could be had now."""
        return self.allocator.num_free

    @property
    def num_reserved(self) -> int:
        """Pages that live requests have not taken yet, but may before they end."""
        return sum(self._pages(req.max_device_len) for req in self.live.values())

    def _has_room(self, pending: PendingReq, cached_len: int) -> bool:
        """Whether `pending` fits at its longest; it has `cached_len` tokens cached."""
        needed = self._pages(pending.max_len) - cached_len // self.page_size
        return needed + self.num_reserved <= self.num_available

    def admit(self, pending: PendingReq, row: int, max_tokens: int) -> Req | None:
        """Let a request in if its life fits and it computes at most `max_tokens` now.

        Returns None, and changes nothing, if not.
        """
        if pending.prompt_len > max_tokens or not self._has_room(pending, 0):
            return None
        return self._start(pending, row, cached_len=0, cache_handle=None)

    def _start(
        self, pending: PendingReq, row: int, cached_len: int, cache_handle: Any
    ) -> Req:
        """Make the request and note it in `live`."""
        req = Req(
            input_ids=pending.input_ids,
            table_idx=row,
            cached_len=cached_len,
            output_len=pending.output_len,
            uid=pending.uid,
            sampling_params=pending.sampling_params,
            cache_handle=cache_handle,
        )
        self.live[req.uid] = req
        return req

    def _pages(self, num_tokens: int) -> int:
        return num_pages_for(num_tokens, self.page_size)
