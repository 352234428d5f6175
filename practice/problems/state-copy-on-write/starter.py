from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.mamba_component import MambaReq
from minisgl.kvcache.unified.node import UnifiedTreeNode


class MambaComponent(mamba_component.MambaComponent):
    def allocate_state(self) -> int | None:
        """A free slot, evicting a state if need be; None if all are in use."""
        raise NotImplementedError("state-copy-on-write: allocate_state")

    def _copy_on_write(
        self, node: UnifiedTreeNode, num_tokens: int, req: MambaReq
    ) -> None:
        """Give `req` its own copy of the state of `node`, after `num_tokens` tokens.

        A request without a slot gets one; if all are in use, nothing changes.
        """
        raise NotImplementedError("state-copy-on-write: _copy_on_write")
