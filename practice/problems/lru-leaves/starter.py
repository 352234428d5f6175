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
        raise NotImplementedError("lru-leaves: RadixTree.evict")

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        """Take a leaf out of the tree; its parent may be an evictable leaf now."""
        raise NotImplementedError("lru-leaves: RadixTree._remove_leaf")
