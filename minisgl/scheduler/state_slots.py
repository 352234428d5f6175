"""The recurrent states of running requests, for models with linear layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minisgl.core import Req
from minisgl.errors import EngineConfigError, IntegrityError
from minisgl.kvcache.state_pool import StatePool
from minisgl.kvcache.unified.mamba_component import MambaComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import MatchResult
from minisgl.scheduler.pages import PendingReq
from minisgl.scheduler.resource import Resource


class StateSlots(Resource):
    """Gives each request a state of its own, and perhaps one for a checkpoint.

    The state must be there at admission. A checkpoint is for others: it is taken where
    the next request with the same prefix can start, if there is a slot for it. Raises
    EngineConfigError if there are fewer than two states: a request that starts from a
    cached one needs another to work on.
    """

    def __init__(self, states: StatePool) -> None:
        if states.num_slots < 2:
            raise EngineConfigError(
                f"num_state_override is {states.num_slots}; to share states there must "
                "be 2 or more"
            )
        self.states = states
        self.component = MambaComponent(states)

    def check_fits(self, prompt_len: int, output_len: int) -> None:
        """A state has one size, whatever the request."""

    def has_room(
        self, pending: PendingReq, cached_len: int, live: Sequence[Req]
    ) -> bool:
        return self.states.num_free + self.component.evictable_size >= 1

    def start(self, req: Req, match: MatchResult) -> None:
        """Copy the matched state for the request, which will write to it."""
        req.mamba_pool_idx = self.component.allocate_state()
        if match.cached_len:
            (cached,) = match.last_device_node.value(ComponentType.MAMBA)
            self.states.copy(cached, req.mamba_pool_idx)
        track_len = self._track_len(req, match)
        if track_len > req.cached_len:
            req.mamba_track_idx = self.component.allocate_state()
            req.mamba_last_track_seqlen = track_len

    def check_integrity(self, live: Sequence[Req]) -> None:
        """Every state is free, or has one owner."""
        used = Counter(self.states.allocator.free_pages)
        for node in self.component.cache.nodes():
            used.update(node.value(ComponentType.MAMBA) or ())
        for req in live:
            used.update(
                slot
                for slot in (req.mamba_pool_idx, req.mamba_track_idx)
                if slot is not None
            )
        for slot in range(self.states.num_slots):
            if used[slot] != 1:
                raise IntegrityError(
                    f"state {slot} has {used[slot]} owners, the free list included; "
                    "it must be 1"
                )

    def _track_len(self, req: Req, match: MatchResult) -> int:
        """Where inside the prompt to take a checkpoint; 0 for nowhere.

        Where the cached tokens go on without a state, if they do. Otherwise at the last
        whole page, unless that is where the prompt ends: the request's own state is
        taken there.
        """
        if match.mamba_branching_seqlen is not None:
            return match.mamba_branching_seqlen
        page_size = self.component.cache.page_size
        num_left = req.prompt_len % page_size
        return req.prompt_len - num_left if num_left else 0
