"""A parent without children goes at once, however recently it was used."""

from __future__ import annotations

from array import array

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    def evict(self, size: int) -> array[int]:
        if not 0 <= size <= self.evictable_size:
            raise EvictionError(
                f"cannot evict {size} tokens: {self.evictable_size} are evictable"
            )
        freed = array("i")
        while len(freed) < size:
            node = self.leaves.pop_oldest()
            while len(freed) < size and node.is_evictable_leaf():
                parent = node.parent
                freed += node.value
                self._remove_leaf(node)
                node = parent
            if node.is_evictable_leaf():
                self.leaves.add(node)
        self.evictable_size -= len(freed)
        return freed

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        del node.parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
