from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams


class SWAComponent(swa_component.SWAComponent):
    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        """Heal a tombstone where the caller has window KV of its own.

        The tree keeps its Full slots, which requests may be reading; the caller's
        window slots are paired with them.
        """
        raise NotImplementedError(
            "tombstone-recovery: update_component_on_insert_overlap"
        )
