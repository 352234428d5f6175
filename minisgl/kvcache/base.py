"""What every prefix cache promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from minisgl.errors import MiniSGLError

if TYPE_CHECKING:
    import torch

    Int32s = torch.Tensor | array[int] | Sequence[int]


class StaleHandleError(MiniSGLError, ValueError):
    """The prefix behind a handle was evicted."""


class LockError(MiniSGLError, ValueError):
    """A receipt was locked twice, released twice, or is still out."""


class EvictionError(MiniSGLError, ValueError):
    """More was to be evicted than is evictable."""


class BaseCacheHandle(ABC):
    """A receipt for a prefix that was found or stored.

    It does not keep the prefix alive until it is locked, and it is locked at most once
    at a time: whoever needs the same prefix matches again and gets a receipt of his
    own. Once the prefix is evicted the handle is stale, and every use of it raises.
    """

    cached_len: int  # tokens of the prefix

    @abstractmethod
    def matched_slots(self) -> array[int]:
        """The slots of the prefix's KV, one per token, on the host."""

    @abstractmethod
    def get_matched_indices(self) -> torch.Tensor:
        """The same slots as an int32 tensor `[cached_len]` on the cache's device."""


class MatchResult(NamedTuple):
    cuda_handle: BaseCacheHandle


class InsertResult(NamedTuple):
    cached_len: int  # tokens, in whole pages, that were there before this insert
    handle: BaseCacheHandle  # covers all of the key that the cache holds now


class SizeInfo(NamedTuple):
    evictable_size: int  # tokens that no receipt protects, whether leaf or not
    protected_size: int  # tokens that at least one locked receipt needs


class BasePrefixCache(ABC):
    """Remembers which slots hold the KV of which token prefixes.

    The cache owns the slots it has taken over with `insert_prefix`; `evict` hands them
    back. It never touches the pool itself. Token ids and slots come as an
    `array('i')`, a list, or a one-dimensional int32 or int64 tensor on the CPU, all of
    them from 0 to 2**31 - 1; anything else raises before a thing has changed. Every
    length counts tokens, and only whole pages are ever stored or found.
    """

    @abstractmethod
    def match_prefix(self, input_ids: Int32s) -> MatchResult:
        """Find the longest stored prefix of `input_ids`.

        No prefix is added, removed or protected: lock the handle before anything can
        evict. What was found counts as used now, and a radix cache may split a node
        so that the handle ends exactly where the match does.
        """

    @abstractmethod
    def insert_prefix(self, input_ids: Int32s, indices: Int32s) -> InsertResult:
        """Store the whole pages of `input_ids`, whose KV lies in the slots `indices`.

        `indices` has an entry per token; both are copied. The result's `cached_len`
        tokens were there already, with slots of their own: the caller keeps its first
        `cached_len` slots and those behind the end of the handle, and the cache owns
        the ones in between. Nothing is protected yet.
        """

    @abstractmethod
    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Protect the handle's whole prefix from eviction, or end that with `unlock`.

        Raises StaleHandleError if the prefix was evicted, and LockError if the handle
        is locked already, or released without being locked.
        """

    @abstractmethod
    def evict(self, size: int) -> torch.Tensor:
        """Forget the prefixes unused for longest and return their slots.

        At least `size` tokens go, and more only when the last node holds more. The
        result is an int32 tensor on the host, where the page allocator lives. Raises
        EvictionError, and forgets nothing, if fewer than `size` tokens are evictable.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget everything; all slots belong to the caller again.

        Raises LockError if a handle is still locked.
        """

    @property
    @abstractmethod
    def size_info(self) -> SizeInfo:
        """How many tokens are evictable and protected; together, all that are held."""

    @abstractmethod
    def held_slots(self) -> array[int]:
        """Every slot the cache owns, in any order; for checks, not for speed."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Recount everything from scratch. Raises IntegrityError naming the offence."""
