"""The evictable leaves of the unified tree."""

from __future__ import annotations

from heapq import heapify

from minisgl.kvcache.leaf_queue import LeafQueue
from minisgl.kvcache.unified.node import UnifiedTreeNode


class UnifiedLeafQueue(LeafQueue):
    """The radix tree's queue, out of which a node can also be taken at any time.

    Here any component may evict a leaf, whether or not its turn has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_removed = 0  # entries that stay in the heap until they are in the way

    def __contains__(self, node: UnifiedTreeNode) -> bool:
        return node.is_late or node in self._in_order

    def remove(self, node: UnifiedTreeNode) -> None:
        """`node` left the tree."""
        self.discard(node)
        self._num_removed += node.is_late
        if 2 * self._num_removed > len(self._late):
            self._late = [entry for entry in self._late if entry[1].parent]
            heapify(self._late)
            self._num_removed = 0
