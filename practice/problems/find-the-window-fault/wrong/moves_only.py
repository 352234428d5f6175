"""Window slots are handed over, but the node names the newcomer's Full slots."""

from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import FULL, UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams, InsertResult


class SWAComponent(swa_component.SWAComponent):
    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        """Heal a tombstone where the caller has window KV of its own."""
        if self.node_has_component_data(node):
            return
        end = start + len(node)
        live_from = max(start, params.swa_evicted_seqlen, params.prev_prefix_len)
        if live_from >= end:
            return
        if live_from > start:
            self.cache.split_node(node, live_from - start)
        given = params.value[live_from:end]
        self.mapping.move(given, node.value(FULL))
        self._set_value(node, given)

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        """Store the live part of a new leaf; make the last window its own node."""
        if result.is_new_leaf:
            num_dead = params.swa_evicted_seqlen - result.prefix_len
            if num_dead >= len(node):
                return
            if num_dead > 0:
                self.cache.split_node(node, num_dead)
            self._set_value(node, node.value(FULL))
        num_before_window = len(node) - self._window_len
        if num_before_window > 0 and self.node_has_component_data(node):
            self.cache.split_node(node, num_before_window)

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """Both halves keep locks and data; a boundary mark moves up."""
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        above.lock_ref = below.lock_ref
        above.metadata, below.metadata = below.metadata, None
        if below.value is not None:
            above.value, below.value = upper.value(FULL), lower.value(FULL)
            self.lru_list.insert(upper, newer=lower)

    def evict_component(self, node: UnifiedTreeNode) -> int:
        """Free this node's window slots. Returns how many tokens lost theirs."""
        full_slots = self._take_value(node)
        self.mapping.free(full_slots)
        return len(full_slots)
