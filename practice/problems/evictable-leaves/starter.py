"""The evictable leaves of a radix tree, in the order in which they were last used."""

from __future__ import annotations

from heapq import heappop, heappush

from minisgl.kvcache import leaf_queue
from minisgl.kvcache.radix_node import RadixTreeNode


class LeafQueue(leaf_queue.LeafQueue):
    """A queue of the leaves that may be evicted, oldest `timestamp` first.

    The engine's `__init__` makes the three attributes:

    * `_in_order`, an OrderedDict whose keys are nodes, oldest first;
    * `_newest`, a stamp that none of theirs is above, 0 at first;
    * `_late`, a heap of (stamp, node), at most one entry for a node.
    """

    def add(self, node: RadixTreeNode) -> None:
        """Take in a node that is an evictable leaf now, unless it is here already."""
        raise NotImplementedError("evictable-leaves: LeafQueue.add")

    def refresh(self, node: RadixTreeNode) -> None:
        """`node` has just been used; if it is here, it is the newest now."""
        raise NotImplementedError("evictable-leaves: LeafQueue.refresh")

    def discard(self, node: RadixTreeNode) -> None:
        """`node` is no leaf any more."""
        raise NotImplementedError("evictable-leaves: LeafQueue.discard")

    def pop_oldest(self) -> RadixTreeNode:
        """Remove the evictable leaf that went unused for longest, and return it.

        There must be one.
        """
        raise NotImplementedError("evictable-leaves: LeafQueue.pop_oldest")
