"""The object stays on top and the new node takes the deeper half."""

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
        above.lock_ref = below.lock_ref


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def split_node(self, node: UnifiedTreeNode, at: int) -> UnifiedTreeNode:
        """Cut a node before its token `at`. Returns the new upper half.

        The deeper half keeps the object, its children and its receipts, which are for
        the prefix that ends there.
        """
        cut = at * TOKEN_BYTES
        lower = self._make_node(node.key[cut:])
        for child_key, child in node.children.items():
            child.set_parent(lower, child_key)
        node.children = {}
        node.key = node.key[:cut]
        lower.set_parent(node, lower.key[: self._page_bytes])
        for mine, new in zip(node.component_data, lower.component_data, strict=True):
            new.value, mine.value = mine.value, None
            new.lock_ref = mine.lock_ref
        for component in self.components:
            component.redistribute_on_node_split(node, lower)
        return node
