"""A node that is not inside the window as a whole stays a tombstone."""

from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import FULL, UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams


class SWAComponent(swa_component.SWAComponent):
    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        if self.node_has_component_data(node):
            return
        end = start + len(node)
        if max(params.swa_evicted_seqlen, params.prev_prefix_len) > start:
            return
        full_slots = node.value(FULL)
        self.mapping.move(params.value[start:end], full_slots)
        self._set_value(node, full_slots)
