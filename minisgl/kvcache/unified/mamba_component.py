"""Recurrent state: one state stands for a whole prefix, and for no other length."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from minisgl.kvcache.radix_key import TOKEN_BYTES
from minisgl.kvcache.unified.lru_list import UnifiedLRUList
from minisgl.kvcache.unified.node import ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import (
    EvictParams,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from minisgl.kvcache.unified.tree_component import (
    CacheConfigError,
    CachingReq,
    TreeComponent,
)

if TYPE_CHECKING:
    from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache


class StatePool(Protocol):
    """Slots for recurrent states of fixed size."""

    def allocate(self) -> int | None:
        """A free slot, or None if there is none."""

    def free(self, slot: int) -> None:
        """Give a slot back."""

    def copy(self, source: int, target: int) -> None:
        """Overwrite the state in `target` with that in `source`."""


class MambaReq(CachingReq, Protocol):
    """A request with a state of its own, and perhaps a checkpoint.

    A checkpoint is a copy of the state at an earlier length, taken to be cached. The
    request owns both slots until the tree takes one.
    """

    mamba_pool_idx: int | None  # the slot the request's forward reads and writes
    mamba_seqlen: int  # the tokens its state stands for
    mamba_track_idx: int | None  # the slot of the checkpoint
    mamba_last_track_seqlen: int  # the tokens the checkpoint stands for


class MambaComponent(TreeComponent):
    """Keeps a state at the end of some nodes: `value` is that one slot.

    A prefix is usable only where it ends with a state. A request works on a copy, so a
    state in the tree never changes.
    """

    component_type = ComponentType.MAMBA

    def __init__(self, pool: StatePool, checkpoint_grid: int | None = None) -> None:
        """States are worth taking at multiples of `checkpoint_grid` tokens.

        A forward can hand out a state only there; by default, at every page.
        """
        super().__init__(UnifiedLRUList(self.component_type))
        self.pool = pool
        self._grid = checkpoint_grid

    def attach(self, cache: UnifiedRadixCache) -> None:
        super().attach(cache)
        self.checkpoint_grid = self._grid or cache.page_size
        if self.checkpoint_grid % cache.page_size:
            raise CacheConfigError(
                f"checkpoint_grid is {self.checkpoint_grid}; it must be a multiple of "
                f"the page size, {cache.page_size}"
            )
        self._page_bytes = cache.page_size * TOKEN_BYTES
        self._other_types = [
            c.component_type for c in cache.components if c is not self
        ]

    def allocate_state(self) -> int | None:
        """A free slot, evicting a state if need be; None if all are in use."""
        slot = self.pool.allocate()
        if slot is None:
            self.cache.evict(EvictParams(mamba_num=1))
            slot = self.pool.allocate()
        return slot

    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        kind = self.component_type
        return lambda node: node.component_data[kind].value is not None

    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        """Say where a state would help, and copy the matched one for the request.

        A request without a slot gets one; if all are in use it goes without
        (`mamba_pool_idx` stays None), and cannot run yet.
        """
        if result.mamba_branching_seqlen is not None:
            branching_len = result.full_hit_len
            branching_len -= branching_len % self.checkpoint_grid
            is_useful = branching_len > result.cached_len
            result.mamba_branching_seqlen = branching_len if is_useful else None
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)

    def refresh_lru(self, node: UnifiedTreeNode) -> None:
        self.lru_list.promote([node])

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        """Take the caller's state, unless there is one or it could not be used here.

        It could not where the key ends within a page, so that the node's end is not the
        state's length, nor where another component has no data, as at the root.
        """
        if params.mamba_value is None:
            return
        if self._can_store(node, params):
            self._set_value(node, params.mamba_value[:])
        else:
            result.mamba_exist = True

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """State and lock belong to the end of the node, and stay with `lower`."""

    def evict_component(self, node: UnifiedTreeNode) -> int:
        (slot,) = self._take_value(node)
        self.pool.free(slot)
        return 1

    def drive_eviction(self, params: EvictParams, tracker: list[int]) -> None:
        self._evict_oldest(params.mamba_num, tracker)

    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        return [receipt.node] if receipt.node is not self.cache.root_node else []

    def prepare_for_caching_req(
        self, req: MambaReq, params: InsertParams, is_finished: bool
    ) -> int | None:
        """Offer a state that stands for exactly what is inserted.

        That is the checkpoint, if there is one: then no more than its tokens are
        inserted. Otherwise it is the request's own state, if it ends with a page: a
        finished request gives it away, a running one a copy. Without any the tokens
        go in alone, and later matches are told where a state is missing.
        """
        page_size, token_ids_len = self.cache.page_size, len(req.token_ids)
        state_len = req.mamba_seqlen if req.mamba_pool_idx is not None else 0
        assert state_len <= token_ids_len, f"state of {state_len} in {token_ids_len}"
        can_share = state_len == token_ids_len and state_len % page_size == 0
        if is_finished and can_share:
            params.mamba_value = array("i", [req.mamba_pool_idx])
        elif req.mamba_track_idx is not None:
            track_len = req.mamba_last_track_seqlen
            assert track_len <= token_ids_len and track_len % page_size == 0, track_len
            params.mamba_value = array("i", [req.mamba_track_idx])
            return track_len
        elif can_share and state_len > req.cache_protected_len:
            slot = self.allocate_state()
            if slot is not None:
                self.pool.copy(req.mamba_pool_idx, slot)
                params.mamba_value = array("i", [slot])
        return None

    def cleanup_after_caching_req(
        self,
        req: MambaReq,
        params: InsertParams,
        result: InsertResult | None,
        is_finished: bool,
    ) -> None:
        """Free the request's slots that it needs no more and the tree did not take."""
        offered = params.mamba_value[0] if params.mamba_value else None
        is_taken = offered is not None and result is not None and not result.mamba_exist
        done = {offered, req.mamba_track_idx}
        req.mamba_track_idx = None
        if is_finished:
            done.add(req.mamba_pool_idx)
            req.mamba_pool_idx = None
        for slot in done - {None, offered if is_taken else None}:
            self.pool.free(slot)

    def value_len(self, node: UnifiedTreeNode) -> int:
        return 1

    def _can_store(self, node: UnifiedTreeNode, params: InsertParams) -> bool:
        if len(params.key.packed) % self._page_bytes or self.node_has_component_data(
            node
        ):
            return False
        for kind in self._other_types:
            if node.component_data[kind].value is None:
                return False
        return True

    def _copy_on_write(
        self, node: UnifiedTreeNode, num_tokens: int, req: MambaReq
    ) -> None:
        if req.mamba_pool_idx is None:
            lock = self.cache.inc_lock_ref(node)
            req.mamba_pool_idx = self.allocate_state()
            self.cache.dec_lock_ref(node, lock.to_dec_params())
        if req.mamba_pool_idx is not None:
            (slot,) = node.value(self.component_type)
            self.pool.copy(slot, req.mamba_pool_idx)
            req.mamba_seqlen = num_tokens
