"""Requests that wait for their prompt to be computed."""

from __future__ import annotations

from collections import deque

from minisgl.core import Batch, Req
from minisgl.scheduler.pages import PageManager, PendingReq
from minisgl.scheduler.table import TableManager


class PrefillManager:
    """Admits waiting requests in the order they came.

    The first one that does not fit keeps the others waiting: if small ones could pass
    it, a large one might never run. A batch computes at most `max_prefill_tokens`
    prompt tokens, unless a single prompt is longer than that.
    """

    def __init__(
        self, table: TableManager, pages: PageManager, max_prefill_tokens: int
    ) -> None:
        self.table = table
        self.pages = pages
        self.max_prefill_tokens = max_prefill_tokens
        self.pending: deque[PendingReq] = deque()

    def add(self, pending: PendingReq) -> None:
        self.pending.append(pending)

    def remove(self, uid: int) -> bool:
        """Forget a request that still waits; False if there is none of that uid."""
        for pending in self.pending:
            if pending.uid == uid:
                self.pending.remove(pending)
                return True
        return False

    def schedule_next_batch(self) -> Batch | None:
        """The next prompts to compute, with rows and pages; None if none can start."""
        reqs: list[Req] = []
        budget = self.max_prefill_tokens
        while self.pending and self.table.num_free:
            first = self.pending[0]
            row = self.table.allocate()
            limit = budget if reqs else max(budget, first.prompt_len)
            req = self.pages.admit(first, row, limit)
            if req is None:
                self.table.free(row)
                break
            self.pending.popleft()
            reqs.append(req)
            budget -= req.extend_len
        if not reqs:
            return None
        self.pages.allocate(reqs)
        return Batch(reqs, "prefill")
