# ruff: noqa: B027 (hooks that do nothing by default)
"""What a request needs besides Full pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence

from minisgl.core import Req
from minisgl.kvcache.unified.params import MatchResult
from minisgl.kvcache.unified.tree_component import TreeComponent
from minisgl.scheduler.pages import PendingReq


class Resource(ABC):
    """One more pool that requests draw from, and the component that shares it.

    Like pages, it is promised at admission, so that no later step can run short.
    """

    component: TreeComponent

    @abstractmethod
    def check_fits(self, prompt_len: int, output_len: int) -> None:
        """Raises PromptError if a request could not even run alone."""

    @abstractmethod
    def has_room(
        self, pending: PendingReq, cached_len: int, live: Sequence[Req]
    ) -> bool:
        """Whether a request that reuses `cached_len` tokens can come in.

        Its prefix is locked by now. `live` are the requests that are in.
        """

    def start(self, req: Req, match: MatchResult) -> None:
        """The request comes in: give it what it needs from the beginning."""

    def trim(self, req: Req) -> None:
        """Before a step: take back what the request will not read again."""

    def extend(self, req: Req, full_slots: array[int]) -> None:
        """The request was given these Full slots, whole pages, for a forward."""

    def free_with(self, full_slots: array[int]) -> None:
        """These Full slots are about to be free."""

    @abstractmethod
    def check_integrity(self, live: Sequence[Req]) -> None:
        """Everything of the pool is in one place. Raises IntegrityError if not."""
