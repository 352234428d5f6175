"""The pools of a model with linear layers: KV for a few layers, states for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.attention.state_space import StateSpaceBackend
from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Req
from minisgl.engine.pools import Pools
from minisgl.errors import DeviceError, PoolError
from minisgl.kvcache.state_pool import StatePool, StateShape

# States for each request that can run, where their number is not given: its own, one
# it may leave midway, and some that are kept for others.
STATES_PER_REQ = 4


class StatePools(Pools):
    """Pages as ever, for the full layers, and one state for each request."""

    def allocate_memory(self) -> None:
        model, device = self.model, self.tables.device
        shape = StateShape.of(model)
        num_full = model.num_layers - shape.num_layers
        self.state_bytes = shape.num_bytes(self.dtype)
        num_states = self.config.num_state_override or self._states_that_fit()
        num_bytes = num_states * self.state_bytes
        self.num_pages = self.fit_pages(self.kv_bytes(num_full), num_bytes)
        self.states = StatePool(shape, num_states, self.dtype, device)
        self.kv_cache = self.full_pool(num_full)
        full = TorchBackend(self.kv_cache, self.tables.page_table, self.dtype)
        self.attn_backend = StateSpaceBackend(full, self.states, device)

    def extend(self, req: Req, full_slots: Sequence[int]) -> None:
        if req.mamba_pool_idx is not None:
            return
        slot = self.states.allocate()
        if slot is None:
            raise PoolError(f"all {self.states.num_slots} states are in use")
        req.mamba_pool_idx = slot

    def reset(self) -> None:
        self.states.reset()

    def _states_that_fit(self) -> int:
        """Enough for all requests, but not in more than half of the memory."""
        budget = self.budget // 2
        fit = budget // self.state_bytes
        if fit < 1:
            raise DeviceError(
                f"a state takes {self.state_bytes} bytes, and {budget} are to be had; "
                "free some memory or raise memory_ratio"
            )
        return min(fit, STATES_PER_REQ * self.config.max_running_req)
