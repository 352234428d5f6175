"""The node takes over the newcomer's Full slots, which have window KV already."""

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
        live_from = max(start, params.swa_evicted_seqlen, params.prev_prefix_len)
        if live_from >= end:
            return
        if live_from > start:
            self.cache.split_node(node, live_from - start)
        node.component_data[FULL].value = params.value[live_from:end]
        self._set_value(node, node.value(FULL))
