"""Right, but every call looks at every leaf there is."""

from __future__ import annotations

from heapq import heapify, heappush

from minisgl.kvcache import leaf_queue
from minisgl.kvcache.radix_node import RadixTreeNode


class LeafQueue(leaf_queue.LeafQueue):
    def add(self, node: RadixTreeNode) -> None:
        if node.is_late or node in self._in_order:
            return
        if node.timestamp >= self._newest:
            self._newest = node.timestamp
            self._in_order[node] = None
        else:
            node.is_late = True
            heappush(self._late, (node.timestamp, node))

    def refresh(self, node: RadixTreeNode) -> None:
        if node in self._in_order:
            self._in_order.move_to_end(node)
            self._newest = node.timestamp

    def discard(self, node: RadixTreeNode) -> None:
        self._in_order.pop(node, None)

    def pop_oldest(self) -> RadixTreeNode:
        queued = [*self._in_order, *(node for _, node in self._late)]
        leaves = [node for node in queued if node.is_evictable_leaf()]
        oldest = min(leaves, key=lambda node: node.timestamp)
        self._in_order.pop(oldest, None)
        if oldest.is_late:
            oldest.is_late = False
            self._late = [entry for entry in self._late if entry[1] is not oldest]
            heapify(self._late)
        return oldest
