"""Chapter 11: the unified tree with full attention alone."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array

import pytest
from unified_world import FULL, World, tokens

from minisgl.errors import IntegrityError
from minisgl.kvcache.base import LockError, StaleHandleError
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey, namespace
from minisgl.kvcache.unified import (
    ComponentType,
    DecLockRefParams,
    EvictParams,
    FullComponent,
    InsertParams,
    UnifiedRadixCache,
)
from minisgl.kvcache.unified.lru_list import UnifiedLRUList
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.tree_component import CacheConfigError


def test_a_split_keeps_the_object_in_the_deeper_half_so_that_a_lock_is_not_leaked():
    world = World()
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    receipt = world.lock([1, 2, 3, 4])
    assert world.sizes() == (0, 4)
    assert world.hit([1, 2, 9]) == 2
    assert world.locks() == [1, 1]
    world.unlock(receipt)
    assert world.sizes() == (4, 0)
    assert world.locks() == [0, 0]
    world.check()


def test_a_lock_covers_what_was_hit_and_no_more():
    world = World()
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    world.lock([1, 2, 9])
    assert world.sizes() == (2, 2)
    world.check()


def test_a_match_refreshes_the_upper_half_of_a_split_only():
    world = World()
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    world.insert([7, 8], [4, 5])
    assert world.hit([1, 2, 9]) == 2
    assert [world.evict(2) for _ in range(3)] == [[[2, 3]], [[4, 5]], [[0, 1]]]


def test_the_order_of_use_needs_no_clock_on_the_wall():
    world = World()
    world.insert([1, 2], [0, 1])
    world.insert([3, 4], [2, 3])
    world.hit([1, 2])
    assert world.evict(2) == [[2, 3]]


def test_a_node_is_found_by_its_whole_first_page():
    world = World(page_size=2)
    assert world.insert([1, 2], [0, 1]).prefix_len == 0
    assert world.insert([1, 9], [2, 3]).prefix_len == 0
    assert len(world.cache.root_node.children) == 2
    assert list(world.match([1, 9]).device_indices) == [2, 3]
    assert world.sizes() == (4, 0)
    world.check()


def test_a_key_without_a_whole_page_leaves_everything_as_it_is():
    world = World(page_size=4)
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    root = world.cache.root_node
    assert world.match([]).last_device_node is root
    assert world.match([1, 2, 3]).last_device_node is root
    assert world.insert([9, 9, 9], [4, 5, 6]).prefix_len == 0
    assert world.insert([], []).prefix_len == 0
    assert world.shape() == [(4, True)]
    assert world.pool.freed == []  # 4, 5 and 6 still belong to the caller
    world.pool.free(array("i", [4, 5, 6]))
    world.check()


def test_a_short_request_frees_its_slots_once_and_its_own_lock():
    world = World(page_size=4)
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    other = world.lock([1, 2, 3, 4])
    req = world.new_req([9, 9, 9])
    world.cache.cache_finished_req(req)
    assert world.pool.freed == [[4, 5, 6, 7]]
    assert world.cache.receipts == {other}
    assert world.shape() == [(4, True)]


def test_the_tree_copies_slots_and_tokens():
    world = World()
    slots, key = array("i", [0, 1, 2, 3]), array("i", [1, 2, 3, 4])
    world.cache.insert(InsertParams(RadixKey(key), slots))
    slots[0] = key[0] = 99
    assert list(world.match([1, 2, 3, 4]).device_indices) == [0, 1, 2, 3]
    world.match([1, 2, 3, 4]).device_indices[0] = 77
    assert list(world.match([1, 2, 3, 4]).device_indices) == [0, 1, 2, 3]


def test_a_node_cut_from_a_long_one_keeps_no_long_buffer():
    world = World(num_slots=100_000)
    world.insert(tokens(100_000))
    world.hit([0])
    world.evict(99_999)
    (node,) = world.cache.nodes()
    assert sys.getsizeof(node.value(FULL)) < 200
    assert sys.getsizeof(node.key) < 200


def test_a_slot_under_two_nodes_is_named():
    world = World()
    world.insert([1, 2], [0, 1])
    world.insert([7, 8], [0, 1])
    with pytest.raises(IntegrityError, match=r"FULL slot 0 is owned twice"):
        world.check()


def test_namespaces_do_not_collide_and_none_is_not_empty():
    world = World()
    world.insert([1, 2], space=namespace(salt="a", lora="bc"))
    assert world.hit([1, 2], namespace(salt="ab", lora="c")) == 0
    assert world.hit([1, 2], "bc") == 0
    assert world.hit([1, 2], namespace(salt="abc")) == 0
    assert world.hit([1, 2]) == 0
    assert world.hit([1, 2], namespace(salt="a", lora="bc")) == 2
    world.insert([1, 2], space=namespace(lora="X"))
    assert world.hit([1, 2], namespace(salt="X")) == 0
    world.insert([1, 2], space="")
    assert world.hit([1, 2]) == 0
    assert world.hit([1, 2], "") == 2
    world.check()


def test_a_namespace_survives_splits_and_leaves_nothing_behind():
    world = World()
    world.insert([1, 2, 3], space="a")
    assert world.hit([1, 9], "a") == 1
    assert world.hit([1, 2, 3], "a") == 3
    world.check()
    world.evict(3)
    assert world.cache.root_node.children == {}


def test_eviction_stops_goes_by_whole_nodes_and_never_takes_the_root():
    world = World()
    for i in (0, 2, 4):
        world.insert([i + 1, i + 2], [i, i + 1])
    assert world.evict(2) == [[0, 1]]
    assert world.sizes() == (4, 0)
    assert world.evict(0) == []
    receipts = [world.lock([3, 4]), world.lock([5, 6])]
    assert world.evict(1) == []
    assert world.sizes() == (0, 4)
    for receipt in receipts:
        world.unlock(receipt)
    assert sorted(world.evict(4)) == [[2, 3], [4, 5]]
    assert world.cache.root_node.children == {}
    world.insert([9], [0])
    world.insert([7, 8, 9], [1, 2, 3])
    world.evict(1)
    assert world.evict(1) == [[1, 2, 3]]


def test_evict_reports_what_it_found_when_there_is_less():
    world = World()
    assert world.cache.evict(EvictParams(num_tokens=5)).num_tokens_evicted == 0
    world.insert([1, 2, 3])
    assert world.cache.evict(EvictParams(num_tokens=100)).num_tokens_evicted == 3


def test_a_parent_is_evicted_only_after_its_children():
    world = World()
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    world.insert([1, 2, 7], [0, 1, 4], prev=2)
    assert world.evict(5) == [[2, 3], [4], [0, 1]]


def test_a_receipt_of_another_node_is_refused():
    world = World()
    world.insert([1, 2])
    world.insert([3, 4])
    first, second = world.lock([1, 2]), world.lock([3, 4])
    with pytest.raises(LockError, match="cannot release node"):
        world.cache.dec_lock_ref(second.node, first.to_dec_params())
    assert world.sizes() == (0, 4)
    world.unlock(first)
    world.unlock(second)
    world.check()


def test_a_receipt_is_good_for_one_release():
    world = World()
    world.insert([1, 2])
    first, second = world.lock([1, 2]), world.lock([1, 2])
    world.unlock(first)
    with pytest.raises(LockError, match="released already"):
        world.unlock(first)
    assert world.sizes() == (0, 2)
    world.unlock(second)
    assert world.sizes() == (2, 0)


def test_an_evicted_node_cannot_be_locked():
    world = World()
    world.insert([1, 2])
    node = world.match([1, 2]).last_device_node
    world.evict(2)
    with pytest.raises(StaleHandleError, match="match again"):
        world.cache.inc_lock_ref(node)


def test_the_root_can_be_locked_and_released():
    world = World()
    receipt = world.lock([1, 2])
    assert receipt.node is world.cache.root_node
    world.unlock(receipt)
    with pytest.raises(LockError):
        world.unlock(receipt)


@pytest.mark.parametrize(
    ("num_shared", "expected"),
    [(0, 0), (5, 0), (15, 0), (16, 16), (17, 16), (31, 16), (47, 32), (48, 48)],
)
def test_whole_pages_are_matched(num_shared, expected):
    world = World(page_size=16, num_slots=160)
    world.insert(tokens(48))
    key = tokens(num_shared) + tokens(60, start=500)
    assert world.hit(key) == expected
    assert world.hit(key[:num_shared]) == expected
    world.check()


def test_too_few_slots_are_refused_and_nothing_changes():
    world = World()
    world.insert([1, 2, 3])
    with pytest.raises(InvalidKeyError, match="4 tokens came with 3 slots"):
        world.insert([1, 2, 8, 9], [50, 51, 52])
    assert world.shape() == [(3, True)]


@pytest.mark.parametrize("page_size", [0, -1, "1"])
def test_a_page_size_that_makes_no_sense_is_refused(page_size):
    with pytest.raises(CacheConfigError, match="page_size is"):
        UnifiedRadixCache(page_size, [FullComponent(print)])


def test_a_tree_needs_the_full_component():
    with pytest.raises(CacheConfigError, match="must begin with FULL"):
        UnifiedRadixCache(1, [])
    with pytest.raises(CacheConfigError, match="must begin with FULL"):
        UnifiedRadixCache(1, [FullComponent(print), FullComponent(print)])


def test_an_unknown_component_is_named():
    with pytest.raises(CacheConfigError, match="no component MAMBA"):
        World().cache.evictable_size(ComponentType.MAMBA)


# a request's life


def test_duplicates_are_freed_by_identity_after_the_row_was_repointed():
    world = World(num_slots=8)
    first, second = world.new_req([1, 2, 3]), world.new_req([1, 2, 3])
    assert list(first.slots) == [0, 1, 2]
    assert list(second.slots) == [3, 4, 5]
    world.cache.cache_unfinished_req(first)
    assert world.pool.freed == []
    events = []
    second.write_row = lambda start, slots: events.append(("row", start, list(slots)))
    free = world.component(FULL).free
    world.component(FULL).free = lambda s: (events.append(("free", list(s))), free(s))
    world.cache.cache_unfinished_req(second)
    assert events == [("row", 0, [0, 1, 2]), ("free", [3, 4, 5])]
    assert world.pool.free_pages == [6, 7, 3, 4, 5]
    assert second.last_node is first.last_node
    assert world.sizes() == (0, 3)
    world.check()


def test_only_what_differs_from_the_tree_is_a_duplicate():
    world = World()
    world.insert([1, 2, 3, 4], [0, 1, 2, 3])
    assert world.insert([1, 2, 3, 4], [0, 1, 2, 3]).duplicates == []
    result = world.insert([1, 2, 3, 4, 5], [0, 1, 8, 9, 10])
    assert result.prefix_len == 4
    assert world.pool.freed == [[8, 9]]
    assert list(world.match([1, 2, 3, 4, 5]).device_indices) == [0, 1, 2, 3, 10]


def test_the_lock_is_handed_over_without_a_gap():
    world = World()
    req = world.new_req([1, 2])
    world.cache.cache_unfinished_req(req)
    assert world.sizes() == (0, 2)
    unlock = world.cache.dec_lock_ref

    def evict_all_then_unlock(node, params):
        assert world.evict(100) == []
        unlock(node, params)
        assert world.evict(100) == []

    world.cache.dec_lock_ref = evict_all_then_unlock
    req.token_ids += array("i", [3, 4])
    req.slots += world.pool.allocate(2)
    world.cache.cache_unfinished_req(req)
    assert world.sizes() == (0, 4)


def test_a_chunked_request_holds_one_lock_all_along():
    world = World()
    req = world.new_req([1, 2])
    world.cache.cache_unfinished_req(req)
    assert (world.sizes(), world.locks()) == ((0, 2), [1])
    req.token_ids += array("i", [3, 4])
    req.slots += world.pool.allocate(2)
    world.cache.cache_unfinished_req(req)
    assert (world.sizes(), world.locks()) == ((0, 4), [1, 1])
    assert req.cache_protected_len == 4
    world.cache.cache_finished_req(req)
    assert (world.sizes(), world.locks()) == ((4, 0), [0, 0])
    world.check()


def test_a_finished_request_leaves_whole_pages_and_frees_the_rest_at_once():
    world = World(page_size=4, num_slots=12)
    req = world.new_req(tokens(7))
    world.cache.cache_finished_req(req)
    assert world.pool.freed == [[4, 5, 6, 7]]
    assert world.sizes() == (4, 0)
    assert sorted(world.pool.free_pages) == [1, 2]


def test_a_request_that_is_dropped_leaves_the_tree_as_it_was():
    world = World(page_size=4, num_slots=12)
    world.insert(tokens(4), [0, 1, 2, 3])
    req = world.new_req(tokens(9))
    assert world.sizes() == (0, 4)
    world.cache.cache_finished_req(req, is_insert=False)
    assert world.pool.freed == [list(range(4, 12))]
    assert world.sizes() == (4, 0)
    world.check()


def test_slots_that_were_allocated_and_not_computed_are_freed_too():
    world = World(num_slots=6)
    req = world.new_req([0, 1, 2, 3])
    req.slots += world.pool.allocate(1)
    world.cache.cache_finished_req(req)
    assert world.hit([0, 1, 2, 3, 4]) == 4
    assert world.pool.freed == [[4]]
    assert len(world.pool.free_pages) + sum(world.sizes()) == 6


def test_a_finished_request_keeps_its_namespace():
    world = World()
    world.cache.cache_finished_req(world.new_req([1, 2, 3], space="a"))
    assert (world.hit([1, 2, 3]), world.hit([1, 2, 3], "a")) == (0, 3)


# integrity


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda node: setattr(node, "key", b""), "not whole pages"),
        (lambda node: setattr(node, "child_key", b"abcd"), "does not find"),
        (lambda node: setattr(node, "key", node.key[4:]), "stands under"),
        (lambda node: node.component_data[0].value.pop(), "2 tokens has 1 FULL slots"),
        (lambda node: setattr(node.component_data[0], "value", None), "no FULL data"),
        (
            lambda node: setattr(node.component_data[0], "lock_ref", 1),
            "has 1 FULL locks",
        ),
    ],
)
def test_the_integrity_check_names_the_offence(damage, message):
    world = World()
    world.insert([1, 2])
    world.check()
    (node,) = world.cache.nodes()
    damage(node)
    with pytest.raises(IntegrityError, match=message):
        world.check()


def test_the_integrity_check_misses_no_leaf():
    world = World()
    world.insert([1, 2])
    world.cache.leaves.pop_oldest()
    with pytest.raises(IntegrityError, match="can be evicted and is not queued"):
        world.check()


def test_the_integrity_check_recounts_sizes():
    world = World()
    world.insert([1, 2])
    world.component(FULL).evictable_size += 1
    with pytest.raises(IntegrityError, match=r"counts \[3, 0\] .* hold \[2, 0\]"):
        world.check()


def test_a_chain_of_thousands_of_nodes_needs_no_recursion(capsys):
    world = World(num_slots=5000)
    for end in range(1, 3001):
        world.insert(tokens(end), list(range(end)), prev=end - 1)
    assert len(world.shape()) == 3000
    receipt = world.lock(tokens(3000))
    world.check()
    world.cache.pretty_print()
    world.unlock(receipt)
    world.evict(3000)
    assert world.sizes() == (0, 0)


def test_pretty_print_draws_slots_and_locks(capsys):
    world = World()
    world.insert([1, 2, 3, 4], [10, 11, 12, 13])
    world.insert([1, 2, 5, 6], [10, 11, 20, 21], prev=2)
    world.insert([7, 8], [30, 31], space="a")
    world.lock([1, 2, 3, 9])
    world.cache.pretty_print()
    assert capsys.readouterr().out == (
        "root\n"
        "└─ [1, 2]  full=[10, 11] lock=1\n"
        "   └─ [3]  full=[12] lock=1\n"
        "      └─ [4]  full=[13]\n"
        "   └─ [5, 6]  full=[20, 21]\n"
        "└─ (('extra_key', 'a'),) [7, 8]  full=[30, 31]\n"
    )


# the list


def make_nodes(num):
    return [UnifiedTreeNode(i, b"", 0, 3) for i in range(num)]


def test_the_list_keeps_the_order_of_use():
    lru, other = UnifiedLRUList(ComponentType.SWA), UnifiedLRUList(ComponentType.MAMBA)
    a, b, c = make_nodes(3)
    for node in (a, b, c):
        lru.insert(node, None)
    other.insert(b, None)
    assert list(lru) == [a, b, c]
    lru.promote([a])
    lru.promote([a])
    assert list(lru) == [b, c, a]
    lru.promote([c, *make_nodes(1), b])  # that one is not in the list
    assert list(lru) == [a, b, c]
    lru.promote([a, c, b])
    assert list(lru) == [b, c, a]
    lru.remove(c)
    assert (c in lru, b in lru, lru.oldest()) == (False, True, b)
    lru.insert(c, b)
    assert list(lru) == [c, b, a]
    assert list(other) == [b]
    for node in list(lru):
        lru.remove(node)
    assert (list(lru), lru.oldest()) == ([], None)


def test_the_list_refuses_to_hold_a_node_twice():
    lru = UnifiedLRUList(ComponentType.SWA)
    (node,) = make_nodes(1)
    lru.insert(node, None)
    with pytest.raises(AssertionError):
        lru.insert(node, None)
    lru.remove(node)
    with pytest.raises(AssertionError):
        lru.remove(node)


# the leaves


def test_eviction_order_is_that_of_a_sorted_list_of_leaves():
    rng = random.Random(11)
    world = World(num_slots=4000)
    receipts = []
    for step in range(600):
        key = [rng.randrange(3) for _ in range(rng.randrange(1, 9))]
        if rng.random() < 0.5:
            match = world.match(key)
            known = list(match.device_indices)
            new = list(world.pool.allocate(len(key) - len(known)))
            world.insert(key, known + new, prev=len(known))
        elif rng.random() < 0.5 or not receipts:
            receipts.append(world.lock(key))
        else:
            world.unlock(receipts.pop(rng.randrange(len(receipts))))
        if step % 20 == 19:
            leaves = [n for n in world.cache.nodes() if n.is_evictable_leaf()]
            oldest = min(leaves, key=lambda n: n.last_access_time, default=None)
            expected = [list(oldest.value(FULL))] if oldest else []
            assert world.evict(1) == expected
        world.check()


def test_nodes_that_left_out_of_turn_do_not_pile_up_among_the_leaves():
    world = World(num_slots=4000)
    late = world.cache.leaves._late
    for number in range(1000):
        world.insert([number, 1])
        world.insert([number, 2], prev=0)
        parent = world.match([number]).last_device_node
        for leaf in list(parent.children.values()):
            world.cache.evict_node(leaf, world.component(FULL), [0, 0, 0])
        world.hit([number])
        world.cache.evict_node(parent, world.component(FULL), [0, 0, 0])
        late = world.cache.leaves._late
        assert len(late) <= 2
        assert len(world.cache.leaves._in_order) <= 2
    world.check()


def test_a_parent_that_is_a_leaf_again_is_as_recent_as_its_last_use():
    world = World()
    world.insert([1], [0])
    world.insert([1, 2], [0, 1], prev=1)
    world.insert([7], [2])
    world.hit([1, 2])
    parent, leaf, _ = world.cache.nodes()
    world.cache.evict_node(leaf, world.component(FULL), [0, 0, 0])
    assert parent.is_evictable_leaf()
    assert world.evict(2)[-2:] == [[2], [0]]


def test_a_node_without_base_data_goes_with_its_childless_ancestors():
    world = World()
    world.insert([1, 2], [0, 1])
    world.insert([1, 2, 3, 4], [0, 1, 2, 3], prev=2)
    upper, leaf = world.cache.nodes()
    world.cache.evict_node(upper, world.component(FULL), [0, 0, 0])
    assert world.shape() == [(2, False), (2, True)]  # a child keeps it
    world.cache.evict_node(leaf, world.component(FULL), [0, 0, 0])
    assert world.shape() == []


# torch


def test_the_unified_tree_needs_no_torch_and_no_numpy():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import minisgl.kvcache.unified"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_releasing_a_part_releases_what_it_would_take_along_once():
    world = World()
    world.insert([1, 2])
    receipt = world.lock([1, 2])
    world.cache.dec_lock_ref(receipt.node, DecLockRefParams(receipt, FULL))
    assert world.sizes() == (2, 0)
    with pytest.raises(LockError):
        world.unlock(receipt)
