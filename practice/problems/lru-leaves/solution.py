"""Make room in a radix tree: the leaves unused for longest go first."""

from __future__ import annotations

from array import array

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    """The engine's radix tree, but for how it evicts."""

    def evict(self, size: int) -> array[int]:
        """Remove the leaves unused for longest until `size` tokens are gone.

        Returns their slots. Raises EvictionError if `size` tokens are not evictable.
        """
        if not 0 <= size <= self.evictable_size:
            raise EvictionError(
                f"cannot evict {size} tokens: {self.evictable_size} are evictable"
            )
        freed = array("i")
        while len(freed) < size:
            node = self.leaves.pop_oldest()
            freed += node.value
            self._remove_leaf(node)
        self.evictable_size -= len(freed)
        return freed

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        """Take a leaf out of the tree; its parent may be an evictable leaf now."""
        parent = node.parent
        del parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
        if parent.is_evictable_leaf():
            self.leaves.add(parent)
