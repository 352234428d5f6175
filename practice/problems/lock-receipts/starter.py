"""Lock the prefix behind a handle, and release it, once each."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import LockError
from minisgl.kvcache.radix_node import RadixTreeHandle


class RadixTree(radix_tree.RadixTree):
    """The engine's tree; `lock` and `unlock` are yours."""

    def lock(self, handle: RadixTreeHandle) -> None:
        """Protect all nodes of the handle's prefix until `unlock`."""
        raise NotImplementedError("lock-receipts: lock")

    def unlock(self, handle: RadixTreeHandle) -> None:
        """Give the receipt back; nodes that no other receipt needs become evictable."""
        raise NotImplementedError("lock-receipts: unlock")
