"""Requests whose prompt is computed and that grow by one token a step."""

from __future__ import annotations

from minisgl.core import Batch, Req
from minisgl.scheduler.pages import PageManager


class DecodeManager:
    """All of them run in every decode batch."""

    def __init__(self, pages: PageManager) -> None:
        self.pages = pages
        self.running: dict[int, Req] = {}  # by uid, in the order they joined

    def add(self, req: Req) -> None:
        self.running[req.uid] = req

    def remove(self, uid: int) -> Req | None:
        """Take a request out; None if none of that uid is running."""
        return self.running.pop(uid, None)

    def schedule_next_batch(self) -> Batch | None:
        """One token for every running request; None if there is none."""
        reqs = list(self.running.values())
        if not reqs:
            return None
        self.pages.allocate(reqs)
        return Batch(reqs, "decode")
