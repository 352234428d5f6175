"""Loops while something is evictable and counts nothing: one call empties the tree."""

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
        while size > 0 and self.evictable_size > 0:
            node = self.leaves.pop_oldest()
            freed += node.value
            self._remove_leaf(node)
            self.evictable_size -= node.length
        return freed

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        parent = node.parent
        del parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
        if parent.is_evictable_leaf():
            self.leaves.add(parent)
