"""A unified tree with small pools around it, in plain Python, for the tests."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    DecLockRefParams,
    EvictParams,
    FullComponent,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
    UnifiedRadixCache,
)
from minisgl.kvcache.unified.node import UnifiedTreeNode

FULL, SWA, MAMBA = ComponentType


class TokenSlots:
    """The pool of Full slots. Freeing one frees the window slot paired with it."""

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        self.page_size = page_size
        self.free_pages = list(range(num_slots // page_size))
        self.used_pages: set[int] = set()
        self.freed: list[list[int]] = []  # what each call of free gave back
        self.window: WindowSlots | None = None

    def allocate(self, num_tokens: int) -> array[int] | None:
        """Slots for `num_tokens` tokens in pages of their own; pairs them as well."""
        num_pages = -(-num_tokens // self.page_size)
        if num_pages > len(self.free_pages):
            return None
        if self.window and num_pages * self.page_size > len(self.window.free_slots):
            return None
        pages = [self.free_pages.pop(0) for _ in range(num_pages)]
        self.used_pages.update(pages)
        slots = array("i")
        for page in pages:
            slots.extend(range(page * self.page_size, (page + 1) * self.page_size))
        if self.window:
            self.window.pair(slots)
        return slots

    def take(self, slots: list[int]) -> array[int]:
        """Use exactly these slots."""
        for page in {slot // self.page_size for slot in slots}:
            if page not in self.used_pages:
                self.free_pages.remove(page)
                self.used_pages.add(page)
        return array("i", slots)

    def free(self, slots: array[int]) -> None:
        if not slots:
            return
        pages = {slot // self.page_size for slot in slots}
        assert pages <= self.used_pages, (
            f"{sorted(pages - self.used_pages)} freed twice"
        )
        self.used_pages -= pages
        self.free_pages += sorted(pages)
        self.freed.append(list(slots))
        if self.window:
            self.window.free(slots)


class WindowSlots:
    """The pool of window slots and their pairing with Full slots."""

    def __init__(self, num_slots: int, base: int = 1000) -> None:
        self.free_slots = list(range(base, base + num_slots))
        self.pairs: dict[int, int] = {}

    def pair(self, full_slots: array[int]) -> None:
        for slot in full_slots:
            assert slot not in self.pairs
            self.pairs[slot] = self.free_slots.pop(0)

    def free(self, full_slots: array[int]) -> None:
        for slot in full_slots:
            if slot in self.pairs:
                self.free_slots.append(self.pairs.pop(slot))

    def move(self, source: array[int], target: array[int]) -> None:
        for old, new in zip(source, target, strict=True):
            assert new not in self.pairs
            self.pairs[new] = self.pairs.pop(old)


class States:
    """The pool of recurrent states; a state is whatever a test puts there."""

    def __init__(self, num_slots: int) -> None:
        self.free_slots = list(range(num_slots))
        self.content: dict[int, Any] = {}

    def allocate(self) -> int | None:
        if not self.free_slots:
            return None
        slot = self.free_slots.pop(0)
        self.content[slot] = None
        return slot

    def free(self, slot: int) -> None:
        assert slot in self.content, f"state {slot} freed twice"
        del self.content[slot]
        self.free_slots.append(slot)

    def copy(self, source: int, target: int) -> None:
        assert source != target
        self.content[target] = self.content[source]


@dataclass(eq=False)
class FakeReq:
    """A request as the tree sees it."""

    token_ids: array[int]
    slots: array[int]
    last_node: UnifiedTreeNode
    lock: IncLockRefResult
    extra_key: Any = None
    cache_protected_len: int = 0
    swa_evicted_seqlen: int = 0
    mamba_pool_idx: int | None = None
    mamba_seqlen: int = 0
    mamba_track_idx: int | None = None
    mamba_last_track_seqlen: int = 0
    writes: list[tuple[int, list[int]]] = field(default_factory=list)

    def write_row(self, start: int, slots: array[int]) -> None:
        self.writes.append((start, list(slots)))
        self.slots[start : start + len(slots)] = slots


class World:
    """A tree and its pools; `window` and `num_states` choose the components."""

    def __init__(
        self,
        *,
        page_size: int = 1,
        window: int | None = None,
        num_states: int | None = None,
        grid: int | None = None,
        num_slots: int = 1000,
        num_window_slots: int = 1000,
    ) -> None:
        self.pool = TokenSlots(num_slots, page_size)
        components = [FullComponent(self.pool.free)]
        self.window = self.states = None
        if window is not None:  # from chapter 12 on
            from minisgl.kvcache.unified import SWAComponent

            self.pool.window = self.window = WindowSlots(num_window_slots)
            components.append(SWAComponent(self.window, window))
        if num_states is not None:  # from chapter 13 on
            from minisgl.kvcache.unified import MambaComponent

            self.states = States(num_states)
            components.append(MambaComponent(self.states, grid))
        self.cache = UnifiedRadixCache(page_size, components)

    def component(self, kind: ComponentType) -> Any:
        return next(c for c in self.cache.components if c.component_type == kind)

    def insert(
        self,
        tokens: list[int],
        slots: list[int] | None = None,
        *,
        swa_evicted: int = 0,
        prev: int = 0,
        state: Any = None,
        space: Any = None,
    ) -> InsertResult:
        """Insert as a request would that computed every token from `prev` on."""
        if slots is None:
            value = self.pool.allocate(len(tokens))
        else:
            value = self.pool.take(slots)
            if self.window:
                self.window.pair(value[prev:])
        if self.window:
            self.window.free(value[prev:swa_evicted])
        params = InsertParams(RadixKey(tokens, space), value, prev, swa_evicted)
        if state is not None:
            slot = self.states.allocate()
            self.states.content[slot] = state
            params.mamba_value = array("i", [slot])
        result = self.cache.insert(params)
        if result.mamba_exist:
            self.states.free(slot)
        return result

    def match(
        self, tokens: list[int], space: Any = None, req: Any = None
    ) -> MatchResult:
        return self.cache.match_prefix(MatchPrefixParams(RadixKey(tokens, space), req))

    def hit(self, tokens: list[int], space: Any = None) -> int:
        return self.match(tokens, space).cached_len

    def lock(self, tokens: list[int], space: Any = None) -> IncLockRefResult:
        return self.cache.inc_lock_ref(self.match(tokens, space).last_device_node)

    def unlock(
        self, receipt: IncLockRefResult, kind: ComponentType | None = None
    ) -> None:
        self.cache.dec_lock_ref(receipt.node, DecLockRefParams(receipt, kind))

    def evict(self, full: int = 0, swa: int = 0, mamba: int = 0) -> list[list[int]]:
        """Evict, and return what went back to the Full pool, call by call."""
        before = len(self.pool.freed)
        self.cache.evict(EvictParams(full, swa, mamba))
        return self.pool.freed[before:]

    def sizes(self, kind: ComponentType = FULL) -> tuple[int, int]:
        return self.cache.evictable_size(kind), self.cache.protected_size(kind)

    def locks(self, kind: ComponentType = FULL) -> list[int]:
        """The lock count of every node, parents before children."""
        return [node.component_data[kind].lock_ref for node in self.cache.nodes()]

    def shape(self) -> list[tuple[int, ...]]:
        """(tokens, then whether each component has data) of every node."""
        kinds = [c.component_type for c in self.cache.components]
        return [
            (len(node), *(node.value(kind) is not None for kind in kinds))
            for node in self.cache.nodes()
        ]

    def new_req(self, tokens: list[int], space: Any = None) -> FakeReq:
        """A request that matched, locked, and has computed all of `tokens`."""
        match = self.match(tokens[:-1], space)
        lock = self.cache.inc_lock_ref(match.last_device_node)
        own = self.pool.allocate(len(tokens) - match.cached_len)
        return FakeReq(
            array("i", tokens),
            match.device_indices + own,
            match.last_device_node,
            lock,
            space,
            match.cached_len,
        )

    def check(self) -> None:
        self.cache.check_integrity()


def tokens(num: int, start: int = 0) -> list[int]:
    """A run of distinct tokens."""
    return list(range(start, start + num))


def branch(num_shared: int, num_own: int, name: int) -> list[int]:
    """`num_shared` tokens of `tokens(…)`, then some that only branch `name` has."""
    return tokens(num_shared) + tokens(num_own, 10_000 * (name + 1))
