from __future__ import annotations

from collections.abc import Iterable, Iterator

from minisgl.kvcache.unified import lru_list
from minisgl.kvcache.unified.node import UnifiedTreeNode


class UnifiedLRUList(lru_list.UnifiedLRUList):
    def __iter__(self) -> Iterator[UnifiedTreeNode]:
        """From least to most recently used."""
        node = self.oldest()
        while node is not None:
            yield node
            node = self.newer(node)

    def insert(self, node: UnifiedTreeNode, newer: UnifiedTreeNode | None) -> None:
        """Add a node as the one used just before `newer`; None makes it the newest."""
        data = node.component_data[self._type]
        assert data.lru_next is None, f"{node} is in the list already"
        after = self._ring if newer is None else newer.component_data[self._type]
        before = after.lru_prev
        data.node, data.lru_prev, data.lru_next = node, before, after
        before.lru_next = after.lru_prev = data

    def remove(self, node: UnifiedTreeNode) -> None:
        """Take a node out."""
        data = node.component_data[self._type]
        assert data.lru_next is not None, f"{node} is not in the list"
        data.lru_prev.lru_next = data.lru_next
        data.lru_next.lru_prev = data.lru_prev
        data.node = data.lru_prev = data.lru_next = None

    def promote(self, nodes: Iterable[UnifiedTreeNode]) -> None:
        """Make these nodes the newest, the first most of all; skip any not listed."""
        newer = None
        for node in nodes:
            if node in self:
                self.remove(node)
                self.insert(node, newer)
                newer = node
