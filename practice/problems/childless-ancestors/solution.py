from __future__ import annotations

from minisgl.kvcache.unified import unified_radix_cache
from minisgl.kvcache.unified.node import UnifiedTreeNode


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def _delete_dead_branch(self, node: UnifiedTreeNode) -> None:
        """Delete a node without children, base data and locks, with all other data.

        Its parents go likewise; the first that stays may be an evictable leaf now.
        """
        while node is not self.root_node and not node.children:
            base = node.component_data[self._base_type]
            if base.value is not None or base.lock_ref:
                break
            for component in self.components:
                if component.node_has_component_data(node):
                    component.evict_component(node)
            parent = node.parent
            del parent.children[node.child_key]
            node.parent = None
            self.leaves.remove(node)
            node = parent
        self._update_evictable_leaf(node)
