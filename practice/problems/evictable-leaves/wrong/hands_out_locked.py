"""What was a leaf when it joined is handed out, locked or not."""

from __future__ import annotations

from heapq import heappop, heappush

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
        while True:
            first = next(iter(self._in_order), None)
            if self._late and (not first or self._late[0][0] < first.timestamp):
                stamp, node = heappop(self._late)
                node.is_late = False
            else:
                node, _ = self._in_order.popitem(last=False)
                stamp = node.timestamp
            if node.timestamp == stamp:
                return node
            self.add(node)
