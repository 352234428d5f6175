from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import FULL, UnifiedTreeNode


class SWAComponent(swa_component.SWAComponent):
    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """A boundary mark moves up: it ends the locked run that comes from below."""
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        above.lock_ref = below.lock_ref
        above.metadata, below.metadata = below.metadata, None
        if below.value is not None:
            above.value = upper.value(FULL)
            below.value = lower.value(FULL)
            self.lru_list.insert(upper, newer=lower)
