"""Takes only what is in the leaves now for evictable, and refuses the rest."""

from __future__ import annotations

from array import array

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    def evict(self, size: int) -> array[int]:
        leaves = [node for node in self.nodes() if node.is_evictable_leaf()]
        evictable = sum(node.length for node in leaves)
        if not 0 <= size <= evictable:
            raise EvictionError(
                f"cannot evict {size} tokens: {evictable} are evictable"
            )
        freed = array("i")
        while len(freed) < size:
            node = self.leaves.pop_oldest()
            freed += node.value
            self._remove_leaf(node)
        self.evictable_size -= len(freed)
        return freed

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        parent = node.parent
        del parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
        if parent.is_evictable_leaf():
            self.leaves.add(parent)
