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
        if node.is_late or node in self._in_order:
            return
        if node.timestamp >= self._newest:
            self._newest = node.timestamp
            self._in_order[node] = None
        else:
            node.is_late = True
            heappush(self._late, (node.timestamp, node))

    def refresh(self, node: RadixTreeNode) -> None:
        """`node` has just been used; if it is here, it is the newest now."""
        if node in self._in_order:
            self._in_order.move_to_end(node)
            self._newest = node.timestamp

    def discard(self, node: RadixTreeNode) -> None:
        """`node` is no leaf any more."""
        self._in_order.pop(node, None)

    def pop_oldest(self) -> RadixTreeNode:
        """Remove the evictable leaf that went unused for longest, and return it.

        There must be one.
        """
        while True:
            first = next(iter(self._in_order), None)
            if self._late and (not first or self._late[0][0] < first.timestamp):
                stamp, node = heappop(self._late)
                node.is_late = False
            else:
                node, _ = self._in_order.popitem(last=False)
                stamp = node.timestamp
            if node.is_evictable_leaf():
                if node.timestamp == stamp:
                    return node
                self.add(node)  # it was used after it joined the heap
