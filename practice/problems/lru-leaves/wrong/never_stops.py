"""Goes on looking when there is nothing to evict: "a lock will be released"."""

from __future__ import annotations

from array import array

from minisgl.kvcache import radix_tree
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    def evict(self, size: int) -> array[int]:
        freed = array("i")
        while len(freed) < size:
            try:
                node = self.leaves.pop_oldest()
            except LookupError:
                continue
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
