"""Lock the prefix behind a handle, and release it, once each."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import LockError
from minisgl.kvcache.radix_node import RadixTreeHandle


class RadixTree(radix_tree.RadixTree):
    """The engine's tree; `lock` and `unlock` are yours."""

    def lock(self, handle: RadixTreeHandle) -> None:
        """Protect all nodes of the handle's prefix until `unlock`."""
        handle.require_fresh()
        if handle in self.receipts:
            raise LockError("this handle is locked; match again for another receipt")
        self.receipts.add(handle)
        length, node = 0, handle.node
        while node.parent is not None:
            if node.ref_count == 0:
                length += node.length
            node.ref_count += 1
            node = node.parent
        self.evictable_size -= length
        self.protected_size += length

    def unlock(self, handle: RadixTreeHandle) -> None:
        """Give the receipt back; nodes that no other receipt needs become evictable."""
        if handle not in self.receipts:
            raise LockError("this handle is not locked here, or was released before")
        self.receipts.remove(handle)
        length, node = 0, handle.node
        while node.parent is not None:
            node.ref_count -= 1
            if node.ref_count == 0:
                length += node.length
            node = node.parent
        self.protected_size -= length
        self.evictable_size += length
        if handle.node.is_evictable_leaf():
            self.leaves.add(handle.node)
