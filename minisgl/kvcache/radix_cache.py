"""The radix cache as the scheduler sees it: tensors outside, the radix tree inside."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from minisgl.core import get_global_ctx
from minisgl.kvcache.base import (
    BaseCacheHandle,
    BasePrefixCache,
    InsertResult,
    LockError,
    MatchResult,
    SizeInfo,
)
from minisgl.kvcache.radix_key import InvalidKeyError, Namespace, RadixKey, to_int32
from minisgl.kvcache.radix_node import RadixTreeHandle, RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree

if TYPE_CHECKING:
    from minisgl.kvcache.base import Int32s


class RadixCacheHandle(BaseCacheHandle):
    """The receipt of the tree, and the device on which its slots are wanted."""

    def __init__(self, receipt: RadixTreeHandle, device: torch.device) -> None:
        self.receipt = receipt
        self.cached_len = receipt.cached_len
        self._device = device

    def matched_slots(self) -> array[int]:
        return self.receipt.matched_slots()

    def get_matched_indices(self) -> torch.Tensor:
        return _to_tensor(self.matched_slots()).to(self._device)


class RadixPrefixCache(BasePrefixCache):
    """A prefix cache on a radix tree, with pages of the global context's size.

    Requests with different `extra_key` (a string, or what `namespace(...)` returns)
    never find each other's prefixes.
    """

    def __init__(self, device: torch.device, page_size: int | None = None) -> None:
        if page_size is None:
            page_size = get_global_ctx().page_size
        self._device = device
        self._tree = RadixTree(page_size)

    @property
    def page_size(self) -> int:
        return self._tree.page_size

    @property
    def root_node(self) -> RadixTreeNode:
        """The root of the tree, for drawings."""
        return self._tree.root_node

    @property
    def size_info(self) -> SizeInfo:
        return self._tree.size_info

    def match_prefix(
        self, input_ids: Int32s, extra_key: str | Namespace | None = None
    ) -> MatchResult:
        key = RadixKey(_on_host(input_ids, "input_ids"), extra_key)
        return MatchResult(self._wrap(self._tree.match_prefix(key)))

    def insert_prefix(
        self,
        input_ids: Int32s,
        indices: Int32s,
        extra_key: str | Namespace | None = None,
    ) -> InsertResult:
        key = RadixKey(_on_host(input_ids, "input_ids"), extra_key)
        slots = to_int32(_on_host(indices, "indices"), "indices")
        cached_len, receipt = self._tree.insert_prefix(key, slots)
        return InsertResult(cached_len, self._wrap(receipt))

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        if not isinstance(handle, RadixCacheHandle):
            raise LockError(f"{handle!r} is not a handle of a radix cache")
        if unlock:
            self._tree.unlock(handle.receipt)
        else:
            self._tree.lock(handle.receipt)

    def evict(self, size: int) -> torch.Tensor:
        return _to_tensor(self._tree.evict(size))

    def reset(self) -> None:
        self._tree.reset()

    def held_slots(self) -> array[int]:
        return self._tree.held_slots()

    def check_integrity(self) -> None:
        self._tree.check_integrity()

    def _wrap(self, receipt: RadixTreeHandle) -> RadixCacheHandle:
        return RadixCacheHandle(receipt, self._device)


def _on_host(values: Int32s, name: str) -> Sequence[int]:
    """`values` as a host-side sequence; a tensor is copied once, as a whole."""
    if not isinstance(values, torch.Tensor):
        return values
    if values.device.type != "cpu":
        raise InvalidKeyError(
            f"{name} is on {values.device}; the tree lives on the host, pass a CPU "
            "tensor or an array('i')"
        )
    if values.dim() != 1 or values.dtype not in (torch.int32, torch.int64):
        raise InvalidKeyError(
            f"{name} is a {values.dtype} tensor of shape {list(values.shape)}; give a "
            "one-dimensional one of dtype torch.int32 or torch.int64"
        )
    if values.dtype == torch.int64 and (values >> 31).any():
        raise InvalidKeyError(
            f"{name} goes from {values.min()} to {values.max()}; it must stay in "
            "0 to 2**31 - 1"
        )
    host = array("i", bytes(4 * len(values)))
    _to_tensor(host).copy_(values)
    return host


def _to_tensor(slots: array[int]) -> torch.Tensor:
    """An int32 tensor on the host; it shares the memory of `slots`."""
    if not slots:
        return torch.empty(0, dtype=torch.int32)
    return torch.frombuffer(slots, dtype=torch.int32)
