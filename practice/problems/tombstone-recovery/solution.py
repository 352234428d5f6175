from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import FULL, UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams


class SWAComponent(swa_component.SWAComponent):
    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        """Heal a tombstone where the caller has window KV of its own.

        The tree keeps its Full slots, which requests may be reading; the caller's
        window slots are paired with them.
        """
        if self.node_has_component_data(node):
            return
        end = start + len(node)
        live_from = max(start, params.swa_evicted_seqlen, params.prev_prefix_len)
        if live_from >= end:
            return
        if live_from > start:
            self.cache.split_node(node, live_from - start)
        full_slots = node.value(FULL)
        self.mapping.move(params.value[live_from:end], full_slots)
        self._set_value(node, full_slots)
