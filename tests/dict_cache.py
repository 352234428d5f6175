"""A prefix cache as plain as it can be: a dictionary of pages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minisgl.errors import IntegrityError
from minisgl.kvcache.base import (
    BaseCacheHandle,
    BasePrefixCache,
    EvictionError,
    InsertResult,
    LockError,
    MatchResult,
    SizeInfo,
    StaleHandleError,
)

Prefix = tuple[int, ...]


@dataclass(eq=False)
class Page:
    slots: array[int]
    last_used: int
    locks: int = 0


class DictHandle(BaseCacheHandle):
    def __init__(self, pages: dict[Prefix, Page]) -> None:
        self.pages = pages
        self.is_locked = False
        self.cached_len = sum(len(page.slots) for page in pages.values())

    def matched_slots(self) -> array[int]:
        return array("i", [slot for page in self.pages.values() for slot in page.slots])

    def get_matched_indices(self) -> torch.Tensor:
        return torch.tensor(self.matched_slots(), dtype=torch.int32)


class DictPrefixCache(BasePrefixCache):
    """Finds a page by all tokens up to its end, and evicts page by page."""

    def __init__(self, device: torch.device, page_size: int) -> None:
        self.page_size = page_size
        self.held: dict[Prefix, Page] = {}
        self.clock = 0

    def match_prefix(self, input_ids: Sequence[int]) -> MatchResult:
        self.clock += 1
        found: dict[Prefix, Page] = {}
        for prefix in self._prefixes(input_ids):
            if prefix not in self.held:
                break
            found[prefix] = self.held[prefix]
            found[prefix].last_used = self.clock
        return MatchResult(DictHandle(found))

    def insert_prefix(
        self, input_ids: Sequence[int], indices: Sequence[int]
    ) -> InsertResult:
        known_len = self.match_prefix(input_ids).cuda_handle.cached_len
        for prefix in self._prefixes(input_ids):
            if len(prefix) > known_len:
                slots = array("i", indices[len(prefix) - self.page_size : len(prefix)])
                self.held[prefix] = Page(slots, self.clock)
        return InsertResult(known_len, self.match_prefix(input_ids).cuda_handle)

    def lock_handle(self, handle: DictHandle, unlock: bool = False) -> None:
        if handle.is_locked is not unlock:
            raise LockError("locked twice, or released without being locked")
        if any(self.held.get(key) is not page for key, page in handle.pages.items()):
            raise StaleHandleError("a page of this prefix was evicted")
        handle.is_locked = not unlock
        for page in handle.pages.values():
            page.locks += -1 if unlock else 1

    def evict(self, size: int) -> torch.Tensor:
        if not 0 <= size <= self.size_info.evictable_size:
            raise EvictionError(f"cannot evict {size} of {self.size_info}")
        freed: list[int] = []
        while len(freed) < size:
            oldest = min(
                (prefix for prefix in self.held if self._may_go(prefix)),
                key=lambda prefix: self.held[prefix].last_used,
            )
            freed += self.held.pop(oldest).slots
        return torch.tensor(freed, dtype=torch.int32)

    def reset(self) -> None:
        if self.size_info.protected_size:
            raise LockError("a handle is locked")
        self.held.clear()

    @property
    def size_info(self) -> SizeInfo:
        locked = sum(page.locks > 0 for page in self.held.values())
        sizes = len(self.held) - locked, locked
        return SizeInfo(*(count * self.page_size for count in sizes))

    def held_slots(self) -> array[int]:
        return array("i", [slot for page in self.held.values() for slot in page.slots])

    def check_integrity(self) -> None:
        if any(page.locks < 0 for page in self.held.values()):
            raise IntegrityError("a page was released more often than locked")

    def _prefixes(self, input_ids: Sequence[int]) -> list[Prefix]:
        ends = range(self.page_size, len(input_ids) + 1, self.page_size)
        return [tuple(input_ids[:end]) for end in ends]

    def _may_go(self, prefix: Prefix) -> bool:
        return not self.held[prefix].locks and not any(
            len(other) > len(prefix) and other[: len(prefix)] == prefix
            for other in self.held
        )
