"""Sliding-window attention: only the last tokens of a prefix are needed."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Protocol

from minisgl.kvcache.radix_key import TOKEN_BYTES, InvalidKeyError
from minisgl.kvcache.unified.lru_list import UnifiedLRUList
from minisgl.kvcache.unified.node import FULL, ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import (
    EvictParams,
    IncLockRefResult,
    InsertParams,
    InsertResult,
)
from minisgl.kvcache.unified.tree_component import (
    CacheConfigError,
    CachingReq,
    TreeComponent,
)

if TYPE_CHECKING:
    from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache


class SWAMapping(Protocol):
    """The window pool, whose slots are each paired with a Full slot."""

    def free(self, full_slots: array[int]) -> None:
        """Free the window slots of these Full slots, where there are any."""

    def move(self, source: array[int], target: array[int]) -> None:
        """Pair `target[i]`, which has no window slot, with that of `source[i]`."""


class SWAReq(CachingReq, Protocol):
    swa_evicted_seqlen: int  # tokens below have no window slot; whole pages


class SWAComponent(TreeComponent):
    """Keeps the window KV of the tokens that a request may still attend to.

    A prefix is usable where its last `sliding_window_size` tokens have their window KV,
    or all of them if it is shorter. A lock protects just that window. Window slots are
    reached through the Full slots they are paired with, by the attention kernels as
    well: `value` is the node's Full slots while their window slots are live.
    """

    component_type = ComponentType.SWA

    def __init__(self, mapping: SWAMapping, sliding_window_size: int) -> None:
        """Raises CacheConfigError unless the window has at least one token."""
        super().__init__(UnifiedLRUList(self.component_type))
        if sliding_window_size < 1:
            raise CacheConfigError(
                f"sliding_window_size is {sliding_window_size}; it must be 1 or more"
            )
        self.mapping = mapping
        self.sliding_window_size = sliding_window_size
        self._window_bytes = sliding_window_size * TOKEN_BYTES
        self._uuids = count(1)  # of the boundary marks

    def attach(self, cache: UnifiedRadixCache) -> None:
        super().attach(cache)
        num_pages = -(-self.sliding_window_size // cache.page_size)
        self._window_len = num_pages * cache.page_size

    def max_evicted_seqlen(self, key_len: int) -> int:
        """How far a request of `key_len` tokens may free its window KV.

        Whole pages, and so that what can be cached of it, its whole pages, still ends
        with a full window.
        """
        page_size = self.cache.page_size
        cached_len = key_len - key_len % page_size
        evicted_len = max(cached_len - self.sliding_window_size, 0)
        return evicted_len - evicted_len % page_size

    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        kind, root = self.component_type, self.cache.root_node
        blocker: UnifiedTreeNode | None = None  # the tombstone met last

        def has_live_window(node: UnifiedTreeNode) -> bool:
            nonlocal blocker
            if blocker is None:
                needed, bytes_left = node, self._window_bytes
                while needed.component_data[kind].value is not None:
                    bytes_left -= len(needed.key)
                    needed = needed.parent
                    if bytes_left <= 0 or needed is root:
                        return True
                blocker = needed
            if node is blocker:  # above it, it is in nobody's way
                blocker = None
            return False

        return has_live_window

    def refresh_lru(self, node: UnifiedTreeNode) -> None:
        self.lru_list.promote(self._window(node))

    def update_component_on_insert_overlap(
        self, node: UnifiedTreeNode, start: int, params: InsertParams
    ) -> None:
        """Heal a tombstone where the caller has window KV of its own.

        The tree keeps its Full slots, which requests may be reading; the caller's
        window slots are paired with them.
        """
        if self.node_has_component_data(node):
            return
        end = start + len(node)
        live_from = max(start, params.swa_evicted_seqlen, params.prev_prefix_len)
        if live_from >= end:
            return
        if live_from > start:
            self.cache.split_node(node, live_from - start)
        full_slots = node.value(FULL)
        self.mapping.move(params.value[live_from:end], full_slots)
        self._set_value(node, full_slots)

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        """Store the live part of a new leaf; make the last window its own node.

        A lock then pins that window, and not a whole span.
        """
        if result.is_new_leaf:
            num_dead = params.swa_evicted_seqlen - result.prefix_len
            if num_dead > 0:
                if num_dead >= len(node):
                    return
                self.cache.split_node(node, num_dead)
            self._set_value(node, node.component_data[FULL].value)
        num_before_window = len(node) - self._window_len
        if num_before_window > 0 and self.node_has_component_data(node):
            self.cache.split_node(node, num_before_window)

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """A boundary mark moves up: it ends the locked run that comes from below."""
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        above.lock_ref = below.lock_ref
        above.metadata, below.metadata = below.metadata, None
        if below.value is not None:
            above.value = upper.value(FULL)
            below.value = lower.value(FULL)
            self.lru_list.insert(upper, newer=lower)

    def evict_component(self, node: UnifiedTreeNode) -> int:
        full_slots = self._take_value(node)
        self.mapping.free(full_slots)
        return len(full_slots)

    def eviction_priority(self, is_leaf: bool) -> int:
        return 0 if is_leaf else 1

    def drive_eviction(self, params: EvictParams, tracker: list[int]) -> None:
        self._evict_oldest(params.swa_num_tokens, tracker)

    def locked_nodes(self, receipt: IncLockRefResult) -> list[UnifiedTreeNode]:
        """From the receipt's node up to the one with its mark, or to the root."""
        nodes, node, root = [], receipt.node, self.cache.root_node
        mark = receipt.swa_uuid_for_lock
        while node is not root:
            nodes.append(node)
            found = node.component_data[self.component_type].metadata
            node = root if mark is not None and found == mark else node.parent
        return nodes

    def acquire_component_lock(
        self, node: UnifiedTreeNode, result: IncLockRefResult
    ) -> None:
        """Lock the last window, tombstones included, and mark its topmost node.

        The mark stays on top through all splits. A run up to the root needs none.
        """
        nodes = self._window(node)
        if nodes and nodes[-1].parent is not self.cache.root_node:
            topmost = nodes[-1].component_data[self.component_type]
            if topmost.metadata is None:
                topmost.metadata = next(self._uuids)
            result.swa_uuid_for_lock = topmost.metadata
        self._lock(nodes)

    def prepare_for_caching_req(
        self, req: SWAReq, params: InsertParams, is_finished: bool
    ) -> int | None:
        """Raises InvalidKeyError if the request's frontier is not whole pages."""
        if req.swa_evicted_seqlen % self.cache.page_size:
            raise InvalidKeyError(
                f"swa_evicted_seqlen is {req.swa_evicted_seqlen}; it must be whole "
                f"pages of {self.cache.page_size}, as max_evicted_seqlen gives"
            )
        params.swa_evicted_seqlen = req.swa_evicted_seqlen
        return None

    def _window(self, node: UnifiedTreeNode) -> list[UnifiedTreeNode]:
        """The nodes of the last window before the end of `node`, deepest first."""
        nodes, bytes_left, root = [], self._window_bytes, self.cache.root_node
        while bytes_left > 0 and node is not root:
            nodes.append(node)
            bytes_left -= len(node.key)
            node = node.parent
        return nodes
