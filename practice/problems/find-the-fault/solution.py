"""A radix tree in which every receipt counts on every node of its prefix."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import LockError
from minisgl.kvcache.radix_node import RadixTreeHandle


class RadixTree(radix_tree.RadixTree):
    """The engine's radix tree, with other methods to lock and to unlock."""

    def lock(self, handle: RadixTreeHandle) -> None:
        """Protect all nodes of the handle's prefix until `unlock`."""
        handle.require_fresh()
        if handle in self.receipts:
            raise LockError("this handle is locked; match again for another receipt")
        self.receipts.add(handle)
        node = handle.node
        while node.parent is not None:
            if node.ref_count == 0:
                self.evictable_size -= node.length
                self.protected_size += node.length
            node.ref_count += 1
            node = node.parent

    def unlock(self, handle: RadixTreeHandle) -> None:
        """Give the receipt back; nodes that no other receipt needs become evictable."""
        if handle not in self.receipts:
            raise LockError("this handle is not locked here, or was released before")
        self.receipts.remove(handle)
        node = handle.node
        while node.parent is not None:
            node.ref_count -= 1
            if node.ref_count == 0:
                self.evictable_size += node.length
                self.protected_size -= node.length
            node = node.parent
        if handle.node.is_evictable_leaf():
            self.leaves.add(handle.node)
