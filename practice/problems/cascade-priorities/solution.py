from __future__ import annotations

from minisgl.kvcache.unified import unified_radix_cache
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.tree_component import TreeComponent


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def evict_node(
        self, node: UnifiedTreeNode, trigger: TreeComponent, tracker: list[int]
    ) -> None:
        """Evict `trigger`'s data on a node, and what is of no use without it.

        On an evictable leaf that is everything, and the leaf goes. Any other node stays
        and is a tombstone for the components that lost their data.
        """
        is_leaf = node.is_evictable_leaf()
        priority = trigger.eviction_priority(is_leaf)
        for component in self.components:
            goes = component.eviction_priority(is_leaf) <= priority
            if goes and component.node_has_component_data(node):
                tracker[component.component_type] += component.evict_component(node)
        self._delete_dead_branch(node)
