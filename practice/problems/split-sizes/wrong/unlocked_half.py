"""The upper half is new, so it starts without locks."""

from __future__ import annotations

from minisgl.kvcache.radix_key import TOKEN_BYTES
from minisgl.kvcache.unified import full_component, unified_radix_cache
from minisgl.kvcache.unified.node import UnifiedTreeNode


class FullComponent(full_component.FullComponent):
    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """`upper` was cut off the front of `lower`, which still has all the data."""
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        at = len(upper)
        above.value, below.value = below.value[:at], below.value[at:]


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def split_node(self, node: UnifiedTreeNode, at: int) -> UnifiedTreeNode:
        """Cut a node before its token `at`. Returns the new upper half.

        The deeper half keeps the object, its children and its receipts, which are for
        the prefix that ends there.
        """
        cut = at * TOKEN_BYTES
        upper = self._make_node(node.key[:cut])
        upper.set_parent(node.parent, node.child_key)
        node.key = node.key[cut:]
        node.set_parent(upper, node.key[: self._page_bytes])
        for component in self.components:
            component.redistribute_on_node_split(upper, node)
        return upper
