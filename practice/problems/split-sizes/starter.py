from __future__ import annotations

from minisgl.kvcache.radix_key import TOKEN_BYTES
from minisgl.kvcache.unified import full_component, unified_radix_cache
from minisgl.kvcache.unified.node import UnifiedTreeNode


class FullComponent(full_component.FullComponent):
    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """`upper` was cut off the front of `lower`, which still has all the data."""
        raise NotImplementedError("split-sizes: redistribute_on_node_split")


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def split_node(self, node: UnifiedTreeNode, at: int) -> UnifiedTreeNode:
        """Cut a node before its token `at`. Returns the new upper half.

        The deeper half keeps the object, its children and its receipts, which are for
        the prefix that ends there.
        """
        cut = at * TOKEN_BYTES
        raise NotImplementedError(f"split-sizes: split_node at byte {cut}")
