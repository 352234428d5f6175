"""The prefix cache that remembers nothing: what every other one is compared with."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import torch

from minisgl.kvcache.base import (
    BaseCacheHandle,
    BasePrefixCache,
    EvictionError,
    InsertResult,
    MatchResult,
    SizeInfo,
)

if TYPE_CHECKING:
    from minisgl.kvcache.base import Int32s


class NaiveCacheHandle(BaseCacheHandle):
    """A receipt for the empty prefix."""

    cached_len = 0

    def matched_slots(self) -> array[int]:
        return array("i")

    def get_matched_indices(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32)


class NaivePrefixCache(BasePrefixCache):
    """Finds nothing and keeps nothing: every page stays with the request it is for."""

    def __init__(self, device: torch.device, page_size: int | None = None) -> None:
        """It needs neither; the signature is that of every prefix cache."""

    def match_prefix(self, input_ids: Int32s) -> MatchResult:
        return MatchResult(NaiveCacheHandle())

    def insert_prefix(self, input_ids: Int32s, indices: Int32s) -> InsertResult:
        return InsertResult(0, NaiveCacheHandle())

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        pass

    def evict(self, size: int) -> torch.Tensor:
        if size != 0:
            raise EvictionError(f"cannot evict {size} tokens: 0 are evictable")
        return torch.empty(0, dtype=torch.int32)

    def reset(self) -> None:
        pass

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(evictable_size=0, protected_size=0)

    def held_slots(self) -> array[int]:
        return array("i")

    def check_integrity(self) -> None:
        pass
