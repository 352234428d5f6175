"""The radix tree against a model in which every slot knows what was computed into it.

Requests come, wait, finish and are aborted in any order, in a pool that barely fits,
so that slots are evicted and used again all the time. The model has no nodes of its
own: it is a dictionary of pages by the whole prefix (and namespace) they end. Runs of
pages that the tree keeps as one node are told by a mark on their first page. From that
it predicts every hit, every eviction with its order, and both sizes.

It runs with a fixed set of examples. MINISGL_STATEFUL_EXAMPLES=2000 runs that many
random ones instead.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from minisgl.kvcache.base import EvictionError, LockError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey, namespace
from minisgl.kvcache.radix_node import RadixTreeHandle
from minisgl.kvcache.radix_tree import RadixTree

EXAMPLES = int(os.environ.get("MINISGL_STATEFUL_EXAMPLES", "0"))
BUDGET = settings(
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

Prefix = tuple[object, tuple[int, ...]]  # namespace, all tokens from the start
# most requests share a namespace; the last two would be one if they were glued
NAMESPACES = [None, None, None, None, "", "ab", namespace(lora="a", salt="b")]
TEXTS = [(0, 1, 0, 1, 1, 1, 0, 0, 1), (0, 1, 0, 1, 1, 0, 0, 0, 0)]


@st.composite
def prefixes(draw: st.DrawFn) -> Prefix:
    """Up to nine tokens: the start of one of two texts, and then something else."""
    start = draw(st.sampled_from(TEXTS))[: draw(st.integers(0, 9))]
    tail = draw(st.lists(st.integers(0, 1), max_size=min(3, 9 - len(start))))
    return draw(st.sampled_from(NAMESPACES)), start + tuple(tail)


@dataclass(eq=False)
class Page:
    """A page the tree should hold."""

    slots: list[int]
    stamp: int
    starts_node: bool
    locks: int = 0


@dataclass(eq=False)
class Receipt:
    handle: RadixTreeHandle
    prefix: Prefix
    pages: list[Page]
    is_locked: bool = False


@dataclass(eq=False)
class Request:
    """Matched, locked, computed; its new slots are its own until it finishes."""

    prefix: Prefix
    receipt: Receipt
    slots: list[int]  # of all its tokens
    own_pages: list[int] = field(default_factory=list)


class TreeMachine(RuleBasedStateMachine):
    page_size = 1
    num_pages = 12

    receipts = Bundle("receipts")
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(self.page_size)
        self.free = list(range(self.num_pages))
        self.content: dict[int, Prefix] = {}  # slot -> what it was computed for
        self.held: dict[Prefix, Page] = {}
        self.live: list[Request] = []
        self.clock = 0
        self.num_locked = 0

    # --- what may happen ----------------------------------------------------------

    @rule(target=receipts, prefix=prefixes())
    def match(self, prefix: Prefix) -> Receipt:
        handle = self.tree.match_prefix(RadixKey(prefix[1], prefix[0]))
        pages = self.model_walk(prefix)
        assert handle.cached_len == len(pages) * self.page_size
        self.check_content(handle.matched_slots(), prefix)
        assert handle.matched_slots().tolist() == [s for p in pages for s in p.slots]
        return Receipt(handle, prefix, pages)

    @rule(receipt=receipts)
    def lock(self, receipt: Receipt) -> None:
        if receipt.is_locked:
            with pytest.raises(LockError):
                self.tree.lock(receipt.handle)
        elif self.is_stale(receipt):
            with pytest.raises(StaleHandleError):
                self.tree.lock(receipt.handle)
            with pytest.raises(StaleHandleError):
                receipt.handle.matched_slots()
        else:
            self.tree.lock(receipt.handle)
            self.model_lock(receipt, by=1)
            self.check_content(receipt.handle.matched_slots(), receipt.prefix)

    @rule(receipt=receipts)
    def unlock(self, receipt: Receipt) -> None:
        if receipt.is_locked:
            self.tree.unlock(receipt.handle)
            self.model_lock(receipt, by=-1)
        else:
            with pytest.raises(LockError):
                self.tree.unlock(receipt.handle)

    @rule(target=requests, prefix=prefixes())
    def admit(self, prefix: Prefix) -> Request:
        """Match, lock, make room, compute; or undo everything if there is no room."""
        receipt = self.match(prefix)
        self.lock(receipt)
        tokens = prefix[1]
        first_new = receipt.handle.cached_len
        num_new = -(-(len(tokens) - first_new) // self.page_size)
        missing = (num_new - len(self.free)) * self.page_size
        if missing > self.tree.evictable_size:
            with pytest.raises(EvictionError, match=f"{missing} tokens"):
                self.tree.evict(missing)
            self.unlock(receipt)
            return multiple()
        self.evict(max(missing, 0))
        own = [self.free.pop() for _ in range(num_new)]
        slots = receipt.handle.matched_slots().tolist()
        slots += [page * self.page_size + i for page in own for i in self.in_page()]
        for position in range(first_new, len(tokens)):
            self.content[slots[position]] = (prefix[0], tokens[: position + 1])
        request = Request(prefix, receipt, slots[: len(tokens)], own)
        self.live.append(request)
        return request

    @rule(target=receipts, request=consumes(requests))
    def finish(self, request: Request) -> Receipt:
        """Insert what was computed, release the lock, free what is left over."""
        extra_key, tokens = request.prefix
        self.check_content(request.slots, request.prefix)
        row = array("i", request.slots)
        result = self.tree.insert_prefix(RadixKey(tokens, extra_key), row)
        row[:] = array("i", [-1]) * len(row)  # the row is the caller's, to use again
        pages = self.model_walk(request.prefix)
        assert result.cached_len == len(pages) * self.page_size
        for start in range(result.cached_len, self.whole(len(tokens)), self.page_size):
            end = start + self.page_size
            starts_node = start == result.cached_len
            page = Page(request.slots[start:end], self.clock, starts_node)
            self.held[extra_key, tokens[:end]] = page
            pages.append(page)
        held_slots = [slot for page in pages for slot in page.slots]
        assert result.handle.cached_len == len(held_slots)
        assert result.handle.matched_slots().tolist() == held_slots
        self.unlock(request.receipt)
        self.live.remove(request)
        taken = {slot // self.page_size for slot in held_slots}
        self.free += [page for page in request.own_pages if page not in taken]
        return Receipt(result.handle, request.prefix, pages)

    @rule(request=consumes(requests))
    def abort(self, request: Request) -> None:
        self.unlock(request.receipt)
        self.live.remove(request)
        self.free += request.own_pages

    @rule(size=st.integers(0, 12))
    def evict(self, size: int) -> None:
        if size > self.tree.evictable_size:
            with pytest.raises(EvictionError):
                self.tree.evict(size)
            return
        slots = self.tree.evict(size).tolist()
        assert slots == self.model_evict(size)
        self.free += [slot // self.page_size for slot in slots[:: self.page_size]]

    @rule()
    def reset(self) -> None:
        if self.num_locked:
            with pytest.raises(LockError):
                self.tree.reset()
        else:
            self.evict(self.tree.evictable_size)
            self.tree.reset()

    # --- what must always hold ----------------------------------------------------

    @invariant()
    def the_tree_agrees_with_itself(self) -> None:
        self.tree.check_integrity()

    @invariant()
    def sizes_are_as_predicted_and_every_page_is_in_one_place(self) -> None:
        locked = sum(page.locks > 0 for page in self.held.values())
        sizes = (len(self.held) - locked, locked)
        assert tuple(self.tree.size_info) == tuple(n * self.page_size for n in sizes)
        held = sorted(slot for page in self.held.values() for slot in page.slots)
        assert sorted(self.tree.held_slots()) == held
        places = self.free + [
            slot // self.page_size for slot in held[:: self.page_size]
        ]
        places += [page for request in self.live for page in request.own_pages]
        assert sorted(places) == list(range(self.num_pages))

    @invariant()
    def nobody_overwrites_what_a_live_request_reads(self) -> None:
        for request in self.live:
            self.check_content(request.slots, request.prefix)

    # --- the model ----------------------------------------------------------------

    def model_walk(self, prefix: Prefix) -> list[Page]:
        """The pages held of `prefix`, stamped now; where they end, a node ends."""
        self.clock += 1
        extra_key, tokens = prefix
        pages = []
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            page = self.held.get((extra_key, tokens[:end]))
            if page is None:
                break
            page.stamp = self.clock
            pages.append(page)
        matched = tokens[: len(pages) * self.page_size]
        for child in self.children((extra_key, matched)):
            self.held[child].starts_node = True
        return pages

    def model_lock(self, receipt: Receipt, by: int) -> None:
        receipt.is_locked = by > 0
        self.num_locked += by
        for page in receipt.pages:
            page.locks += by
            assert page.locks >= 0

    def model_evict(self, size: int) -> list[int]:
        """Node by node, the one with the oldest stamp among those with no children."""
        freed: list[int] = []
        while len(freed) < size:
            stamps = {
                page.stamp: prefix
                for prefix, page in self.held.items()
                if not page.locks and not self.children(prefix)
            }
            extra_key, tokens = stamps[min(stamps)]
            node: list[int] = []
            starts_node = False
            while not starts_node:
                page = self.held.pop((extra_key, tokens))
                starts_node = page.starts_node
                node = page.slots + node
                tokens = tokens[: -self.page_size]
            freed += node
        return freed

    def children(self, prefix: Prefix) -> list[Prefix]:
        """The pages held that come right after `prefix`."""
        extra_key, tokens = prefix
        return [
            (key, other)
            for key, other in self.held
            if key == extra_key and other[: -self.page_size] == tokens
        ]

    def is_stale(self, receipt: Receipt) -> bool:
        held = self.held.values()
        return any(all(page is not p for p in held) for page in receipt.pages)

    def check_content(self, slots: array[int] | list[int], prefix: Prefix) -> None:
        """Every slot holds the KV of the prefix that ends at its token."""
        extra_key, tokens = prefix
        for position, slot in enumerate(slots):
            assert self.content[slot] == (extra_key, tokens[: position + 1])

    def whole(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def in_page(self) -> range:
        return range(self.page_size)


@pytest.mark.parametrize(
    ("page_size", "num_pages"), [(1, 9), (1, 24), (2, 5), (2, 12), (4, 3), (4, 6)]
)
def test_any_order_of_operations_agrees_with_the_model(page_size: int, num_pages: int):
    class Machine(TreeMachine):
        pass

    Machine.page_size, Machine.num_pages = page_size, num_pages
    run_state_machine_as_test(Machine, settings=BUDGET)
