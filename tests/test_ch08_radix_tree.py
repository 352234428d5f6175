"""Chapter 08: the radix tree and its keys. Nothing here needs torch."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

import minisgl
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import EvictionError, LockError, StaleHandleError
from minisgl.kvcache.radix_key import (
    InvalidKeyError,
    RadixKey,
    common_prefix_bytes,
    namespace,
)
from minisgl.kvcache.radix_node import RadixTreeHandle, RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree


def ins(tree: RadixTree, tokens: list[int], slots: list[int], extra_key=None) -> int:
    """Insert, check, and say how much was there before."""
    result = tree.insert_prefix(RadixKey(tokens, extra_key), array("i", slots))
    tree.check_integrity()
    return result.cached_len


def match(tree: RadixTree, tokens: list[int], extra_key=None) -> RadixTreeHandle:
    handle = tree.match_prefix(RadixKey(tokens, extra_key))
    assert len(handle.matched_slots()) == handle.cached_len
    tree.check_integrity()
    return handle


def slots_of(tree: RadixTree, tokens: list[int], extra_key=None) -> list[int]:
    return match(tree, tokens, extra_key).matched_slots().tolist()


def evict(tree: RadixTree, size: int) -> list[int]:
    slots = tree.evict(size).tolist()
    tree.check_integrity()
    return slots


def drawing(tree: RadixTree) -> list[tuple[int, list[int], list[int], int]]:
    """(depth, tokens, slots, ref_count) of every node, in the order of the tokens."""
    lines, stack = [], [(0, tree.root_node)]
    while stack:
        depth, node = stack.pop()
        if not node.is_root():
            line = (depth, node.key.tolist(), node.value.tolist(), node.ref_count)
            lines.append(line)
        children = sorted(node.children.values(), key=lambda n: n.key.tolist())
        stack += [(depth + 1, child) for child in reversed(children)]
    return lines


# --- match, split, insert ---------------------------------------------------------


def test_shared_prefixes_become_one_node_with_two_branches():
    tree = RadixTree()
    assert ins(tree, [1, 2, 3, 4], [10, 11, 12, 13]) == 0
    assert ins(tree, [1, 2, 5, 6], [90, 91, 20, 21]) == 2
    assert ins(tree, [7, 8], [30, 31]) == 0
    assert drawing(tree) == [
        (1, [1, 2], [10, 11], 0),
        (2, [3, 4], [12, 13], 0),
        (2, [5, 6], [20, 21], 0),
        (1, [7, 8], [30, 31], 0),
    ]
    assert tuple(tree.size_info) == (8, 0)


def test_a_match_that_ends_inside_a_node_splits_it_there():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    assert slots_of(tree, [1, 2, 3, 9]) == [0, 1, 2]
    assert drawing(tree) == [(1, [1, 2, 3], [0, 1, 2], 0), (2, [4], [3], 0)]
    assert slots_of(tree, [1, 2, 3]) == [0, 1, 2], "and now it ends at a node"
    assert len(drawing(tree)) == 2


def test_a_key_shorter_than_the_node_splits_it_at_its_end():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    assert ins(tree, [1, 2], [8, 9]) == 2
    assert drawing(tree) == [(1, [1, 2], [0, 1], 0), (2, [3, 4], [2, 3], 0)]


def test_inserting_what_is_there_adds_nothing():
    tree = RadixTree()
    ins(tree, [1, 2, 3], [0, 1, 2])
    result = tree.insert_prefix(RadixKey([1, 2, 3]), array("i", [7, 8, 9]))
    assert result.cached_len == 3
    assert result.handle.matched_slots().tolist() == [0, 1, 2]
    assert tuple(tree.size_info) == (3, 0)


@pytest.mark.parametrize(
    ("page_size", "stored"), [(1, 7), (2, 6), (3, 6), (4, 4), (7, 7), (8, 0)]
)
def test_only_whole_pages_are_stored_and_found(page_size: int, stored: int):
    tree = RadixTree(page_size)
    tokens = [1, 2, 3, 4, 5, 6, 7]
    result = tree.insert_prefix(RadixKey(tokens), array("i", range(7)))
    assert result.handle.cached_len == stored
    assert tuple(tree.size_info) == (stored, 0)
    for length in range(8):
        found = min(length // page_size * page_size, stored)
        assert slots_of(tree, tokens[:length] + [9]) == list(range(found))


def test_every_prefix_of_random_insertions_is_found_with_its_own_slots():
    rng = random.Random(8)
    for page_size in (1, 2, 4):
        tree, pages, next_slot = RadixTree(page_size), {}, 0
        for _ in range(200):
            tokens = rng.choices(range(2), k=rng.randrange(14))
            whole = len(tokens) // page_size * page_size
            slots = list(range(next_slot, next_slot + len(tokens)))
            next_slot += len(tokens)
            ends = range(page_size, whole + 1, page_size)
            cached = max((e for e in ends if tuple(tokens[:e]) in pages), default=0)
            assert ins(tree, tokens, slots) == cached
            for end in ends:
                page = slots[end - page_size : end]
                pages.setdefault(tuple(tokens[:end]), page)
            expected = [slot for end in ends for slot in pages[tuple(tokens[:end])]]
            assert slots_of(tree, tokens) == expected


def test_when_the_object_of_a_split_node_turns_upper_no_lock_is_leaked():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    handle = match(tree, [1, 2, 3, 4])
    node = handle.node
    tree.lock(handle)
    match(tree, [1, 2, 9])
    assert handle.node is node and node.key.tolist() == [3, 4], "the deeper half"
    assert handle.matched_slots().tolist() == [0, 1, 2, 3]
    assert drawing(tree) == [(1, [1, 2], [0, 1], 1), (2, [3, 4], [2, 3], 1)]
    tree.unlock(handle)
    tree.check_integrity()
    assert tuple(tree.size_info) == (4, 0)
    assert [line[3] for line in drawing(tree)] == [0, 0]


def test_a_lock_covers_what_was_hit_and_not_the_rest_of_the_node():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    tree.lock(match(tree, [1, 2, 9]))
    tree.check_integrity()
    assert tuple(tree.size_info) == (2, 2)


def test_a_page_is_indexed_whole_and_no_split_happens_at_zero():
    tree = RadixTree(page_size=2)
    ins(tree, [1, 2], [0, 1])
    assert ins(tree, [1, 9], [2, 3]) == 0
    assert slots_of(tree, [1, 9]) == [2, 3]
    assert set(tree.root_node.children) == {
        RadixKey([1, 2]).packed,
        RadixKey([1, 9]).packed,
    }
    assert tuple(tree.size_info) == (4, 0)


def test_a_difference_inside_a_page_ends_the_match_before_that_page():
    tree = RadixTree(page_size=2)
    ins(tree, [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5])
    assert slots_of(tree, [1, 2, 3, 9, 5, 6]) == [0, 1]
    assert ins(tree, [1, 2, 3, 9], [6, 7, 8, 9]) == 2
    assert [line[1] for line in drawing(tree)] == [[1, 2], [3, 4, 5, 6], [3, 9]]


def test_keys_without_a_whole_page_find_and_leave_nothing():
    tree = RadixTree(page_size=4)
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    assert match(tree, []).cached_len == 0
    short = match(tree, [1, 2, 3])
    assert short.cached_len == 0
    assert ins(tree, [9, 9, 9], [4, 5, 6]) == 0
    assert ins(tree, [], []) == 0
    assert drawing(tree) == [(1, [1, 2, 3, 4], [0, 1, 2, 3], 0)]
    assert tuple(tree.size_info) == (4, 0)
    tree.lock(short)  # a receipt for nothing is still a receipt, released once
    assert tuple(tree.size_info) == (4, 0)
    tree.unlock(short)
    with pytest.raises(LockError):
        tree.unlock(short)
    tree.check_integrity()


def test_the_tree_keeps_copies_of_tokens_and_slots():
    tree = RadixTree()
    tokens, slots = array("i", [1, 2, 3, 4]), array("i", [0, 1, 2, 3])
    tree.insert_prefix(RadixKey(tokens), slots)
    tokens[0], slots[0] = 99, 99
    assert slots_of(tree, [1, 2, 3, 4]) == [0, 1, 2, 3]
    match(tree, [1, 2, 3, 4]).matched_slots()[0] = 99
    assert slots_of(tree, [1, 2, 3, 4]) == [0, 1, 2, 3]


def test_a_split_leaves_no_large_array_behind():
    tree = RadixTree()
    tree.insert_prefix(RadixKey(array("i", range(100_000))), array("i", range(100_000)))
    assert match(tree, [0, 9]).cached_len == 1
    assert len(evict(tree, 99_999)) == 99_999
    (node,) = tree.root_node.children.values()
    assert node.value == array("i", [0]) and sys.getsizeof(node.value) < 200
    assert node.packed == RadixKey([0]).packed and type(node.packed) is bytes


def test_namespaces_do_not_share_a_prefix():
    tree = RadixTree()
    assert ins(tree, [1, 2], [0, 1], namespace(salt="a", lora="bc")) == 0
    assert slots_of(tree, [1, 2], namespace(lora="bc", salt="a")) == [0, 1]
    for other in (
        namespace(salt="ab", lora="c"),
        namespace(extra="bc"),
        namespace(salt="abc"),
        "abc",
        "bc",
        "",
        None,
    ):
        assert match(tree, [1, 2], other).cached_len == 0, other
    ins(tree, [1, 2], [2, 3], namespace(lora="X"))
    assert match(tree, [1, 2], namespace(salt="X")).cached_len == 0
    assert slots_of(tree, [1, 2, 3], namespace(lora="X")) == [2, 3]


def test_no_namespace_and_an_empty_string_are_two_namespaces():
    tree = RadixTree(page_size=2)
    assert ins(tree, [1, 2], [0, 1]) == 0
    assert ins(tree, [1, 2], [2, 3], "") == 0
    assert ins(tree, [1, 2], [4, 5], namespace(lora="")) == 0
    assert ins(tree, [1, 2], [6, 7], namespace(lora=None)) == 2, "not given"
    assert slots_of(tree, [1, 2]) == [0, 1]
    assert slots_of(tree, [1, 2], "") == [2, 3]
    assert evict(tree, 6) == [4, 5, 0, 1, 2, 3]


def test_a_namespaced_prefix_can_be_split_extended_and_evicted():
    tree = RadixTree()
    ins(tree, [1, 2, 3], [0, 1, 2], "tenant")
    ins(tree, [1, 2, 3], [3, 4, 5])
    assert ins(tree, [1, 2, 4], [6, 7, 8], "tenant") == 2
    assert slots_of(tree, [1, 2, 4], "tenant") == [0, 1, 8]
    assert evict(tree, 7) == [2, 3, 4, 5, 8, 0, 1]
    assert not tree.root_node.children


# --- locks ------------------------------------------------------------------------


def test_a_lock_protects_the_whole_path_until_its_receipt_is_back():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    first, second = match(tree, [1, 2, 3, 4]), match(tree, [1, 2])
    tree.lock(first)
    tree.lock(second)
    tree.check_integrity()
    assert [line[3] for line in drawing(tree)] == [2, 1]
    assert tuple(tree.size_info) == (0, 4)
    tree.unlock(first)
    tree.check_integrity()
    assert tuple(tree.size_info) == (2, 2)
    assert evict(tree, 2) == [2, 3], "the unlocked end goes, the locked start stays"
    tree.unlock(second)
    assert evict(tree, 1) == [0, 1]


def test_locking_the_new_before_releasing_the_old_leaves_no_gap():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    first = match(tree, [1, 2])
    tree.lock(first)
    assert tree.protected_size == 2
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    second = match(tree, [1, 2, 3, 4])
    tree.lock(second)
    with pytest.raises(EvictionError):
        tree.evict(1)
    tree.unlock(first)
    assert [line[3] for line in drawing(tree)] == [1, 1]
    assert tree.protected_size == 4
    tree.unlock(second)
    tree.check_integrity()
    assert tuple(tree.size_info) == (4, 0)


def test_a_receipt_is_released_once_and_locked_once():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    handle = match(tree, [1, 2])
    with pytest.raises(LockError, match="not locked here, or was released before"):
        tree.unlock(handle)
    tree.lock(handle)
    with pytest.raises(LockError, match="match again"):
        tree.lock(handle)
    tree.unlock(handle)
    with pytest.raises(LockError, match="released before"):
        tree.unlock(handle)
    tree.check_integrity()
    assert tuple(tree.size_info) == (2, 0)
    tree.lock(handle)  # nothing was evicted, so it may be used again
    assert tuple(tree.size_info) == (0, 2)


def test_a_receipt_of_another_tree_is_refused():
    tree, other = RadixTree(), RadixTree()
    ins(tree, [1, 2], [0, 1])
    handle = match(tree, [1, 2])
    tree.lock(handle)
    with pytest.raises(LockError):
        other.unlock(handle)


def test_the_handle_of_an_evicted_prefix_is_stale_even_if_the_prefix_is_back():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    handle = match(tree, [1, 2])
    evict(tree, 1)
    ins(tree, [1, 2], [4, 5])
    with pytest.raises(StaleHandleError, match="2 tokens.*match again"):
        tree.lock(handle)
    with pytest.raises(StaleHandleError):
        handle.matched_slots()
    tree.check_integrity()
    assert tuple(tree.size_info) == (2, 0)


def test_a_handle_survives_a_split_and_the_eviction_of_what_lies_behind_it():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    handle = match(tree, [1, 2])
    match(tree, [1])
    assert evict(tree, 1) == [2, 3]
    assert handle.matched_slots().tolist() == [0, 1]


def test_reset_forgets_everything_but_not_under_a_lock():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    handle = match(tree, [1, 2])
    tree.lock(handle)
    with pytest.raises(LockError, match="1 handles are locked"):
        tree.reset()
    assert slots_of(tree, [1, 2]) == [0, 1]
    tree.unlock(handle)
    tree.reset()
    tree.check_integrity()
    assert tuple(tree.size_info) == (0, 0) and match(tree, [1, 2]).cached_len == 0
    with pytest.raises(StaleHandleError):
        tree.lock(handle)


# --- eviction ---------------------------------------------------------------------


def test_a_match_stamps_the_upper_half_of_a_split_and_not_the_lower():
    tree = RadixTree()
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    ins(tree, [7, 8], [4, 5])
    match(tree, [1, 2, 9])
    assert [evict(tree, 2) for _ in range(3)] == [[2, 3], [4, 5], [0, 1]]


def test_the_least_recently_used_goes_first_when_the_time_of_day_stands_still(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("monotonic_ns", "monotonic", "time", "time_ns", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1)
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    ins(tree, [3, 4], [2, 3])
    match(tree, [1, 2])
    assert evict(tree, 2) == [2, 3]


def test_the_clock_counts_matches_and_inserts_from_one():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    ins(tree, [3, 4], [2, 3])
    match(tree, [9])
    handle = match(tree, [1])
    tree.lock(handle)
    tree.unlock(handle)
    assert {n.key.tolist()[0]: n.timestamp for n in tree.nodes() if n.length} == {
        1: 4,
        2: 1,
        3: 2,
    }


def test_an_insert_uses_the_path_it_goes_through():
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    ins(tree, [3, 4], [2, 3])
    ins(tree, [1, 2, 5], [0, 1, 4])
    assert [evict(tree, 1) for _ in range(3)] == [[2, 3], [4], [0, 1]]


def test_eviction_stops_when_there_is_enough_and_refuses_when_there_is_not():
    tree = RadixTree()
    for tokens, slots in (([1, 2], [0, 1]), ([3, 4], [2, 3]), ([5, 6], [4, 5])):
        ins(tree, tokens, slots)
    assert evict(tree, 2) == [0, 1] and tuple(tree.size_info) == (4, 0)
    assert evict(tree, 0) == [] and tuple(tree.size_info) == (4, 0)
    handles = [match(tree, [3, 4]), match(tree, [5, 6])]
    for handle in handles:
        tree.lock(handle)
    before = drawing(tree)
    with pytest.raises(EvictionError, match="cannot evict 1 tokens: 0 are evictable"):
        tree.evict(1)
    tree.check_integrity()
    assert drawing(tree) == before and tuple(tree.size_info) == (0, 4)
    for handle in handles:
        tree.unlock(handle)
    assert sorted(evict(tree, 4)) == [2, 3, 4, 5]
    assert drawing(tree) == [] and tuple(tree.size_info) == (0, 0)
    assert ins(tree, [9], [0]) == 0, "the root is still there"
    tree.reset()
    ins(tree, [1, 2, 3], [0, 1, 2])
    assert evict(tree, 1) == [0, 1, 2], "a leaf goes as a whole"


@pytest.mark.parametrize("size", [-1, 3])
def test_a_refused_eviction_names_both_numbers_and_frees_nothing(size: int):
    tree = RadixTree()
    ins(tree, [1, 2], [0, 1])
    with pytest.raises(EvictionError, match=f"{size} tokens: 2 are"):
        tree.evict(size)
    assert tuple(tree.size_info) == (2, 0) and slots_of(tree, [1, 2]) == [0, 1]


def test_a_parent_goes_after_its_last_child_in_the_order_of_its_own_use():
    tree = RadixTree()
    ins(tree, [1, 2, 3], [0, 1, 2])
    match(tree, [1])  # splits, and stamps the upper part [1] with 2
    ins(tree, [5], [3])  # stamp 3
    match(tree, [1])  # [1] is newer than [5] now
    assert [evict(tree, 1) for _ in range(3)] == [[1, 2], [3], [0]]


def test_a_leaf_released_late_is_evicted_by_the_time_of_its_use():
    tree = RadixTree()
    for token in range(4):
        ins(tree, [token], [token])
    handles = [match(tree, [token]) for token in (2, 0, 1)]  # use: 3, 2, 0, 1
    for handle in handles:
        tree.lock(handle)
    assert evict(tree, 1) == [3]
    for index in (2, 0, 1):
        tree.unlock(handles[index])
        tree.check_integrity()
    assert [evict(tree, 1) for _ in range(3)] == [[2], [0], [1]]


def test_a_locked_leaf_is_passed_over_and_queued_again_when_released():
    tree = RadixTree()
    for token in range(4):
        ins(tree, [token], [token])
    handles = [match(tree, [token]) for token in (0, 1)]
    match(tree, [2])
    for handle in handles:
        tree.lock(handle)
    assert evict(tree, 1) == [3]
    assert evict(tree, 1) == [2], "0 and 1 are older and locked"
    ins(tree, [5], [5])
    tree.unlock(handles[1])
    tree.unlock(handles[0])
    match(tree, [0])  # used while it waits out of order
    ins(tree, [6], [6])
    assert [evict(tree, 1) for _ in range(4)] == [[1], [5], [0], [6]]


def test_the_queue_of_leaves_does_not_grow_with_use():
    tree = RadixTree()
    rng = random.Random(1)
    for token in range(50):
        ins(tree, [token], [token])
    for _ in range(100):
        handles = [match(tree, [token]) for token in rng.sample(range(50), 20)]
        for handle in handles:
            tree.lock(handle)
        evicted = evict(tree, 1)
        for handle in rng.sample(handles, len(handles)):
            tree.unlock(handle)
        ins(tree, evicted, evicted)
    queue = tree.leaves
    assert len(queue._in_order) + len(queue._late) == 50


def test_a_leaf_that_waits_out_of_order_waits_once_however_often_it_is_used():
    tree = RadixTree()
    ins(tree, [0], [0])
    ins(tree, [1], [1])
    handle = match(tree, [0])
    tree.lock(handle)
    assert evict(tree, 1) == [1]
    match(tree, [0])
    for token in (2, 3):
        ins(tree, [token], [token])
    ins(tree, [4], [4])
    tree.lock(match(tree, [4]))
    assert evict(tree, 1) == [2], "0 is locked, and loses its place"
    tree.unlock(handle)
    for _ in range(3):
        tree.check_integrity()
        tree.lock(handle)
        tree.unlock(handle)
    tree.check_integrity()
    assert [evict(tree, 1) for _ in range(2)] == [[0], [3]]


def test_chains_far_deeper_than_the_recursion_limit_work():
    tree, depth = RadixTree(), 4 * sys.getrecursionlimit()
    tokens = array("i", range(depth))
    for length in range(1, depth + 1):
        tree.insert_prefix(RadixKey(tokens[:length]), tokens[:length])
    tree.check_integrity()
    handle = tree.match_prefix(RadixKey(tokens))
    assert handle.matched_slots() == tokens
    tree.lock(handle)
    assert tuple(tree.size_info) == (0, depth)
    tree.check_integrity()
    tree.unlock(handle)
    assert tree.evict(depth).tolist() == list(reversed(range(depth)))
    tree.check_integrity()


# --- keys -------------------------------------------------------------------------


def test_a_long_comparison_finds_every_position():
    tokens = array("i", range(1000, 1300))
    key = RadixKey(tokens).packed
    for position in range(300):
        other = tokens[:]
        other[position] += 1 << 24  # differs in the last byte of a token only
        assert common_prefix_bytes(key, 0, RadixKey(other).packed, 4) == 4 * position
    assert common_prefix_bytes(key, 0, key, 4) == len(key)


@pytest.mark.parametrize(
    "tokens",
    [
        [-1],
        [1, 2**31],
        [1.5],
        ["a"],
        [[1]],
        7,
        None,
        array("i", [3, -3]),
        array("d", [1]),
    ],
)
def test_tokens_that_are_not_small_integers_are_refused(tokens: object):
    with pytest.raises(InvalidKeyError, match=r"token_ids .*2\*\*31 - 1"):
        RadixKey(tokens)


@pytest.mark.parametrize(
    "extra_key", [5, ["a"], ("a", "b"), (("a", 1),), (("a", "x"), ("a", "y")), b"x"]
)
def test_a_namespace_of_another_form_is_refused(extra_key: object):
    with pytest.raises(InvalidKeyError, match="extra_key is"):
        RadixKey([1], extra_key)


def test_a_namespace_field_that_is_not_a_string_is_refused():
    with pytest.raises(InvalidKeyError, match="lora is 7"):
        namespace(lora=7)


def test_unequal_lengths_are_refused_before_anything_changes():
    tree = RadixTree()
    ins(tree, [1, 2, 3], [0, 1, 2])
    with pytest.raises(InvalidKeyError, match="2 tokens came with 3 slots"):
        tree.insert_prefix(RadixKey([1, 9]), array("i", [3, 4, 5]))
    assert drawing(tree) == [(1, [1, 2, 3], [0, 1, 2], 0)] and tree.clock == 1


# --- the recount ------------------------------------------------------------------


def test_one_slot_under_two_nodes_is_named_although_the_sums_agree():
    tree = RadixTree()
    tree.insert_prefix(RadixKey([1, 2]), array("i", [0, 1]))
    tree.insert_prefix(RadixKey([7, 8]), array("i", [0, 1]))
    with pytest.raises(IntegrityError, match=r"slot 0 is owned twice: by node \["):
        tree.check_integrity()


def test_one_slot_twice_in_a_node_is_named():
    tree = RadixTree()
    tree.insert_prefix(RadixKey([1, 2]), array("i", [3, 3]))
    with pytest.raises(IntegrityError, match="slot 3 is owned twice"):
        tree.check_integrity()


def _corruptible() -> tuple[RadixTree, RadixTreeNode, RadixTreeNode]:
    """root -> [1, 2] locked once -> ([3, 4], [5, 6]); returns it, [1, 2] and [3, 4]."""
    tree = RadixTree(page_size=2)
    ins(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    ins(tree, [1, 2, 5, 6], [0, 1, 4, 5])
    handle = match(tree, [1, 2])
    tree.lock(handle)
    tree.check_integrity()
    upper = handle.node
    return tree, upper, upper.children[RadixKey([3, 4]).packed]


def _rename(node: RadixTreeNode, child_key: object) -> None:
    node.parent.children[child_key] = node.parent.children.pop(node.child_key)
    node.child_key = child_key


CORRUPTIONS = {
    "lay under a wrong name": (
        lambda tree, upper, leaf: _rename(leaf, RadixKey([3, 9]).packed),
        "which is not its first page",
    ),
    "lie under one name and remember another": (
        lambda tree, upper, leaf: setattr(leaf, "child_key", RadixKey([3]).packed),
        "lies under",
    ),
    "point at another parent": (
        lambda tree, upper, leaf: setattr(leaf, "parent", tree.root_node),
        "its parent is",
    ),
    "have fewer slots than tokens": (
        lambda tree, upper, leaf: setattr(leaf, "value", array("i", [2])),
        "8 bytes of tokens, 1 slots",
    ),
    "hold half a page": (
        lambda tree, upper, leaf: (
            setattr(leaf, "value", array("i", [2, 3, 9])),
            setattr(leaf, "packed", RadixKey([3, 4, 8]).packed),
        ),
        "holds 3 tokens; a page has 2",
    ),
    "be younger than its parent": (
        lambda tree, upper, leaf: setattr(leaf, "timestamp", upper.timestamp + 1),
        "what is above it",
    ),
    "be stamped in the future": (
        lambda tree, upper, leaf: setattr(upper, "timestamp", 99),
        "stamped 99",
    ),
    "be locked without a receipt": (
        lambda tree, upper, leaf: setattr(leaf, "ref_count", 1),
        r"node \[3, 4\] is locked 1×, by 0 receipts",
    ),
    "miss a lock": (
        lambda tree, upper, leaf: setattr(upper, "ref_count", 0),
        r"node \[1, 2\] is locked 0×, by 1 receipts",
    ),
    "be evicted and still there": (
        lambda tree, upper, leaf: setattr(leaf, "is_evicted", True),
        "was evicted and is still in the tree",
    ),
    "be cut off under a lock": (
        lambda tree, upper, leaf: tree.root_node.children.clear(),
        r"a receipt is out for node \[1, 2\], which is not in the tree",
    ),
    "be its own parent": (
        lambda tree, upper, leaf: setattr(upper, "parent", upper),
        r"a receipt for 2 tokens is out, and the path of node \[1, 2\]",
    ),
    "be missing from the queue": (
        lambda tree, upper, leaf: tree.leaves.discard(leaf),
        r"not queued: \[node \[3, 4\]\]",
    ),
    "be queued without being a leaf": (
        lambda tree, upper, leaf: tree.leaves.add(upper),
        r"node \[1, 2\] is queued",
    ),
    "be queued out of order": (
        lambda tree, upper, leaf: setattr(leaf, "timestamp", 2),
        "out of order",
    ),
}


@pytest.mark.parametrize("offence", CORRUPTIONS)
def test_the_check_names_a_node_that_is_made_to(offence: str):
    tree, upper, leaf = _corruptible()
    corrupt, message = CORRUPTIONS[offence]
    if offence == "be queued out of order":
        match(tree, [1, 2, 5, 6])
        match(tree, [1, 2, 3, 4])
    corrupt(tree, upper, leaf)
    with pytest.raises(IntegrityError, match=message):
        tree.check_integrity()


@pytest.mark.parametrize("counter", ["evictable_size", "protected_size"])
def test_the_check_names_a_counter_that_drifts(counter: str):
    tree, _, _ = _corruptible()
    setattr(tree, counter, getattr(tree, counter) + 2)
    with pytest.raises(IntegrityError, match=r"nodes add up to \(4, 2\)"):
        tree.check_integrity()


def test_the_check_ends_on_a_cycle():
    tree, upper, leaf = _corruptible()
    leaf.children[upper.child_key] = upper
    with pytest.raises(IntegrityError, match="its parent is"):
        tree.check_integrity()


def test_the_tree_imports_without_torch_and_numpy():
    code = (
        "import sys; sys.modules.update(torch=None, numpy=None)\n"
        "from minisgl.kvcache.radix_tree import RadixTree\n"
        "from minisgl.kvcache.radix_key import RadixKey\n"
        "RadixTree().match_prefix(RadixKey([1]))"
    )
    root = Path(minisgl.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
