"""The unified tree with Full alone decides as the radix tree of chapter 08 does."""

from __future__ import annotations

import os
from array import array

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from unified_world import FULL

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_tree import RadixTree
from minisgl.kvcache.unified import (
    EvictParams,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)

EXAMPLES = int(os.environ.get("MINISGL_STATEFUL_EXAMPLES", "0"))

keys = st.lists(st.integers(0, 1), max_size=12)
spaces = st.sampled_from([None, None, "", "a"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), keys, spaces, st.integers(0, 12)),
        st.tuples(st.just("match"), keys, spaces),
        st.tuples(st.just("lock"), keys, spaces),
        st.tuples(st.just("unlock"), st.integers(0, 99)),
        st.tuples(st.just("evict"), st.integers(0, 8)),
    ),
    max_size=60,
)


class Pair:
    """Both trees, driven alike; the unified tree's own frees are noted."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.radix = RadixTree(page_size)
        self.freed: list[int] = []
        self.unified = UnifiedRadixCache(page_size, [FullComponent(self.freed.extend)])
        self.locks = []
        self.num_slots = 0

    def match(self, tokens, space):
        key = RadixKey(tokens, space)
        handle = self.radix.match_prefix(key)
        match = self.unified.match_prefix(MatchPrefixParams(key))
        assert match.cached_len == match.full_hit_len == handle.cached_len
        assert match.device_indices == handle.matched_slots()
        assert match.mamba_branching_seqlen is None
        return handle, match

    def insert(self, tokens, space, num_reused):
        """With slots of a match for the first tokens, and new ones for the others."""
        handle, _ = self.match(tokens, space)
        known = handle.matched_slots()[:num_reused]
        num_new = len(tokens) - len(known)
        slots = known + array("i", range(self.num_slots, self.num_slots + num_new))
        self.num_slots += num_new
        key = RadixKey(tokens, space)
        cached_len, after = self.radix.insert_prefix(key, slots)
        kept = after.matched_slots()[:cached_len]
        self.freed.clear()
        result = self.unified.insert(InsertParams(key, slots))
        assert result.prefix_len == cached_len
        duplicates = [s for s, k in zip(slots, kept, strict=False) if s != k]
        assert self.freed == duplicates

    def lock(self, tokens, space):
        handle, match = self.match(tokens, space)
        self.radix.lock(handle)
        self.locks.append((handle, self.unified.inc_lock_ref(match.last_device_node)))

    def unlock(self, number):
        if self.locks:
            handle, receipt = self.locks.pop(number % len(self.locks))
            self.radix.unlock(handle)
            self.unified.dec_lock_ref(receipt.node, receipt.to_dec_params())

    def evict(self, size):
        size = min(size, self.radix.evictable_size)
        self.freed.clear()
        result = self.unified.evict(EvictParams(num_tokens=size))
        assert list(self.radix.evict(size)) == self.freed
        assert result.num_tokens_evicted == len(self.freed)

    def check(self):
        assert self.radix.size_info == (
            self.unified.evictable_size(),
            self.unified.protected_size(),
        )
        assert sorted(self.drawn_radix()) == sorted(self.drawn_unified())
        self.unified.check_integrity()

    def drawn_radix(self):
        for node in self.radix.nodes():
            if not node.is_root():
                yield (node.packed, node.value.tolist(), node.ref_count, node.timestamp)

    def drawn_unified(self):
        for node in self.unified.nodes():
            locks = node.component_data[FULL].lock_ref
            yield (node.key, node.value(FULL).tolist(), locks, node.last_access_time)


@settings(
    max_examples=EXAMPLES or 150,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(page_size=st.sampled_from([1, 2, 4]), todo=operations)
def test_both_trees_match_free_evict_and_count_alike(page_size, todo):
    pair = Pair(page_size)
    for name, *arguments in todo:
        getattr(pair, name)(*arguments)
        pair.check()
    while pair.locks:
        pair.unlock(0)
    pair.evict(pair.radix.evictable_size)
    pair.check()
    assert pair.unified.root_node.children == {}
