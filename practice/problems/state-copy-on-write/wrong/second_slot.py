"""Every match takes a new slot, also for a request that has one."""

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
        lock = self.cache.inc_lock_ref(node)
        slot = self.allocate_state()
        self.cache.dec_lock_ref(node, lock.to_dec_params())
        if slot is not None:
            (cached,) = node.value(self.component_type)
            self.pool.copy(cached, slot)
            req.mamba_pool_idx = slot
            req.mamba_seqlen = num_tokens
