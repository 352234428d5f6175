# ruff: noqa: B027 (many hooks do nothing by default)
"""The hooks through which the unified tree leaves all real work to its components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from minisgl.errors import MiniSGLError
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

if TYPE_CHECKING:
    from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache


class CacheConfigError(MiniSGLError, ValueError):
    """The parts of a unified cache do not fit together."""


class CachingReq(Protocol):
    """What the tree needs of a request; a component may ask for more.

    Who owns the slots of its row of the page table:

        0 ........... cache_protected_len ........... len(token_ids) .... len(slots)
        |  the tree         |  the request, KV computed    |  the request     |
    """

    token_ids: array[int]  # whose KV is computed
    slots: array[int]  # the row, as far as it is allocated
    extra_key: Any
    cache_protected_len: int  # whole pages
    last_node: UnifiedTreeNode  # the node that `lock` locks
    lock: IncLockRefResult

    def write_row(self, start: int, slots: array[int]) -> None:
        """From token `start` on, point the row at `slots` instead."""


class TreeComponent(ABC):
    """One kind of data in the tree: who can use it, who protects it, when it goes.

    A component keeps slots in the `component_data` of nodes, gives them back to the
    pool they came from, and counts its units (tokens, or states).
    """

    component_type: ClassVar[ComponentType]
    cache: UnifiedRadixCache

    def __init__(self, lru_list: UnifiedLRUList | None = None) -> None:
        self.lru_list = lru_list  # the nodes that have data, if that is how they go
        self.evictable_size = 0  # units that no lock covers
        self.protected_size = 0

    def attach(self, cache: UnifiedRadixCache) -> None:
        """Join a tree. Raises CacheConfigError where the two do not fit."""
        self.cache = cache

    # match: the tree asks only components that have these hooks

    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        """A predicate for one match: may it end with this node?

        It is asked about the nodes of the path, from the deepest up, until all agree.
        """
        return lambda node: True

    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        """Complete the result, or prepare `params.req`."""

    def refresh_lru(self, node: UnifiedTreeNode) -> None:
        """A match or insert ended at `node`: what it used counts as recent."""

    # insert

    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        """The key runs through `node`, from token `start` on, which the caller has too.

        A component may take over data that the node lacks, though never Full slots, and
        may split the node.
        """

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        """The key ends at `node`, perhaps the root: store what is new.

        If `result.is_new_leaf`, it begins at token `result.prefix_len`. A component may
        split it.
        """

    @abstractmethod
    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """`upper` was cut off the front of `lower`, which still has all the data."""

    # evict

    @abstractmethod
    def evict_component(self, node: UnifiedTreeNode) -> int:
        """Free this component's data on a node, which has some. Returns its units."""

    def eviction_priority(self, is_leaf: bool) -> int:
        """Evicting a component takes along the others of the same or lower priority."""
        return 0

    @abstractmethod
    def drive_eviction(self, params: EvictParams, tracker: list[int]) -> None:
        """Evict until `tracker[component_type]`, the units gone, meets the target."""

    def _evict_oldest(self, target: int, tracker: list[int]) -> None:
        """Evict by `lru_list`, stepping over locked nodes."""
        kind, node = self.component_type, self.lru_list.oldest()
        while node and tracker[kind] < target:
            newer = self.lru_list.newer(node)  # evicting takes one node off the list
            if not node.component_data[kind].lock_ref:
                self.cache.evict_node(node, self, tracker)
            node = newer

    # lock

    @abstractmethod
    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        """The nodes that a lock covers in this component, deepest first."""

    def acquire_component_lock(
        self, node: UnifiedTreeNode, result: IncLockRefResult
    ) -> None:
        """Lock what a request that ends at `node` needs."""
        self._lock(self.locked_nodes(result))

    def release_component_lock(self, receipt: IncLockRefResult) -> None:
        """Undo one `acquire_component_lock`."""
        kind, num_released = self.component_type, 0
        for node in self.locked_nodes(receipt):
            data = node.component_data[kind]
            assert data.lock_ref > 0, f"{node} is unlocked more often than locked"
            data.lock_ref -= 1
            if not data.lock_ref:
                data.metadata = None
                num_released += len(data.value or ())
        self.protected_size -= num_released
        self.evictable_size += num_released

    def _lock(self, nodes: list[UnifiedTreeNode]) -> None:
        kind, num_protected = self.component_type, 0
        for node in nodes:
            data = node.component_data[kind]
            if not data.lock_ref:
                num_protected += len(data.value or ())
            data.lock_ref += 1
        self.evictable_size -= num_protected
        self.protected_size += num_protected

    # cache a request

    def prepare_for_caching_req(
        self, req: CachingReq, params: InsertParams, is_finished: bool
    ) -> int | None:
        """Fill in `params`. Returns the most tokens to insert, None for no limit."""
        return None

    def cleanup_after_caching_req(
        self,
        req: CachingReq,
        params: InsertParams,
        result: InsertResult | None,
        is_finished: bool,
    ) -> None:
        """The request was cached; `result` is None if nothing was inserted."""

    # utility

    def node_has_component_data(self, node: UnifiedTreeNode) -> bool:
        return node.component_data[self.component_type].value is not None

    def value_len(self, node: UnifiedTreeNode) -> int:
        """How many slots this component's data on a node must have."""
        return len(node)

    def _set_value(self, node: UnifiedTreeNode, value: array[int]) -> None:
        data = node.component_data[self.component_type]
        data.value = value
        if data.lock_ref:
            self.protected_size += len(value)
        else:
            self.evictable_size += len(value)
        if self.lru_list is not None:
            self.lru_list.insert(node, None)

    def _take_value(self, node: UnifiedTreeNode) -> array[int]:
        data = node.component_data[self.component_type]
        value, data.value = data.value, None
        assert not data.lock_ref, f"{node} is locked and loses its data"
        self.evictable_size -= len(value)
        if self.lru_list is not None:
            self.lru_list.remove(node)
        return value
