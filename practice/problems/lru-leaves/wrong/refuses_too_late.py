"""Takes what there is, and says only then that it was not enough."""

from __future__ import annotations

from array import array

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    def evict(self, size: int) -> array[int]:
        evictable = self.evictable_size
        freed = array("i")
        while len(freed) < size and self.evictable_size > 0:
            node = self.leaves.pop_oldest()
            freed += node.value
            self._remove_leaf(node)
            self.evictable_size -= node.length
        if size < 0 or len(freed) < size:
            raise EvictionError(
                f"cannot evict {size} tokens: {evictable} are evictable"
            )
        return freed

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        parent = node.parent
        del parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
        if parent.is_evictable_leaf():
            self.leaves.add(parent)
