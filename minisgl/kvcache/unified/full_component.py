"""Full attention: every token of a prefix is needed, and all of them are kept."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from minisgl.kvcache.unified.node import ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import (
    EvictParams,
    IncLockRefResult,
    InsertParams,
    InsertResult,
)
from minisgl.kvcache.unified.tree_component import TreeComponent


class FullComponent(TreeComponent):
    """Keeps the KV slots of full attention, one per token.

    It is the base of the tree: every node has Full data, a lock covers the whole path
    to the root, and eviction goes leaf by leaf.
    """

    component_type = ComponentType.FULL

    def __init__(self, free: Callable[[array[int]], None]) -> None:
        """`free` gives Full slots back, and what is paired with them in other pools.

        It gets whole pages, but for the last page of a request, which may be cut short.
        """
        super().__init__()
        self.free = free

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        if result.is_new_leaf:
            start = result.prefix_len
            self._set_value(node, params.value[start : start + len(node)])

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        above.lock_ref, at = below.lock_ref, len(upper)
        above.value, below.value = below.value[:at], below.value[at:]

    def evict_component(self, node: UnifiedTreeNode) -> int:
        slots = self._take_value(node)
        self.free(slots)
        return len(slots)

    def eviction_priority(self, is_leaf: bool) -> int:
        return 0 if is_leaf else 2

    def drive_eviction(self, params: EvictParams, tracker: list[int]) -> None:
        kind, cache = self.component_type, self.cache
        while tracker[kind] < params.num_tokens and self.evictable_size:
            cache.evict_node(cache.leaves.pop_oldest(), self, tracker)

    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        nodes, node, root = [], receipt.node, self.cache.root_node
        while node is not root:
            nodes.append(node)
            node = node.parent
        return nodes
