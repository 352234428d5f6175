"""The lock covers the whole path, as in Full."""

from __future__ import annotations

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import IncLockRefResult


class SWAComponent(swa_component.SWAComponent):
    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        """From the receipt's node up to the one with its mark, or to the root."""
        nodes, node = [], receipt.node
        mark = receipt.swa_uuid_for_lock
        while node is not self.cache.root_node:
            nodes.append(node)
            found = node.component_data[self.component_type].metadata
            if mark is not None and found == mark:
                break
            node = node.parent
        return nodes

    def acquire_component_lock(
        self, node: UnifiedTreeNode, result: IncLockRefResult
    ) -> None:
        """Lock the last window, tombstones included, and mark its topmost node.

        The mark stays on top through all splits. A run up to the root needs none.
        """
        topmost = None
        while node is not self.cache.root_node:
            topmost = node.component_data[self.component_type]
            if not topmost.lock_ref and topmost.value is not None:
                self.evictable_size -= len(topmost.value)
                self.protected_size += len(topmost.value)
            topmost.lock_ref += 1
            node = node.parent
        if topmost is not None and node is not self.cache.root_node:
            if topmost.metadata is None:
                topmost.metadata = next(self._uuids)
            result.swa_uuid_for_lock = topmost.metadata
