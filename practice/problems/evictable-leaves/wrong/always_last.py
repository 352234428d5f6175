"""Takes every node in at the end, as if all that join had just been used."""

from __future__ import annotations

from heapq import heappop

from minisgl.kvcache import leaf_queue
from minisgl.kvcache.radix_node import RadixTreeNode


class LeafQueue(leaf_queue.LeafQueue):
    def add(self, node: RadixTreeNode) -> None:
        if node.is_late or node in self._in_order:
            return
        self._in_order[node] = None
        self._newest = max(self._newest, node.timestamp)

    def refresh(self, node: RadixTreeNode) -> None:
        if node in self._in_order:
            self._in_order.move_to_end(node)
            self._newest = node.timestamp

    def discard(self, node: RadixTreeNode) -> None:
        self._in_order.pop(node, None)

    def pop_oldest(self) -> RadixTreeNode:
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
