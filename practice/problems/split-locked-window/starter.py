from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode


class SWAComponent(swa_component.SWAComponent):
    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """`upper` was cut off the front of `lower`, which still has all the data."""
        raise NotImplementedError("split-locked-window: redistribute_on_node_split")
