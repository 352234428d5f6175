"""The request is handed the slot of the tree: nothing is copied."""

from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.mamba_component import MambaReq
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import EvictParams


class MambaComponent(mamba_component.MambaComponent):
    def allocate_state(self) -> int | None:
        """A free slot, evicting a state if need be; None if all are in use."""
        slot = self.pool.allocate()
        if slot is None:
            self.cache.evict(EvictParams(mamba_num=1))
            slot = self.pool.allocate()
        return slot

    def _copy_on_write(
        self, node: UnifiedTreeNode, num_tokens: int, req: MambaReq
    ) -> None:
        (req.mamba_pool_idx,) = node.value(self.component_type)
        req.mamba_seqlen = num_tokens
