from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import IncLockRefResult


class SWAComponent(swa_component.SWAComponent):
    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        """From the receipt's node up to the one with its mark, or to the root."""
        raise NotImplementedError("window-lock: locked_nodes")

    def acquire_component_lock(
        self, node: UnifiedTreeNode, result: IncLockRefResult
    ) -> None:
        """Lock the last window, tombstones included, and mark its topmost node.

        The mark stays on top through all splits. A run up to the root needs none.
        """
        raise NotImplementedError("window-lock: acquire_component_lock")
