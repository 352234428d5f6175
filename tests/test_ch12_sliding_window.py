"""Chapter 12: sliding windows in the unified tree."""

from __future__ import annotations

from array import array

import pytest
from unified_world import FULL, SWA, World, branch, tokens

from minisgl.errors import IntegrityError
from minisgl.kvcache.base import LockError
from minisgl.kvcache.radix_key import InvalidKeyError
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.swa_component import SWAComponent
from minisgl.kvcache.unified.tree_component import CacheConfigError


def chain(*ends, window=10, page_size=1, **kwargs):
    """A chain of nodes that end at these lengths, with all window slots live."""
    world = World(window=window, page_size=page_size, **kwargs)
    slots, begin = [], 0
    for end in ends:
        slots += range(begin, end)
        world.insert(tokens(end), slots[:], prev=begin)
        begin = end
    return world


def live_chain(window, *runs):
    """A chain of nodes of these (length, is live)."""
    world = World(window=window)
    slots = world.pool.allocate(sum(length for length, _ in runs))
    end = 0
    for length, is_live in runs:
        start, end = end, end + length
        if not is_live:
            world.window.free(slots[start:end])
        insert_own(world, end, slots, start, 0 if is_live else end)
    world.check()
    return world


def insert_own(world, end, slots, prev, swa_evicted):
    from minisgl.kvcache.radix_key import RadixKey
    from minisgl.kvcache.unified import InsertParams

    key = RadixKey(tokens(end))
    world.cache.insert(InsertParams(key, slots[:end], prev, swa_evicted))


# match


@pytest.mark.parametrize("swa_evicted", [0, 89, 90])
def test_a_prefix_whose_last_window_is_live_is_usable(swa_evicted):
    world = World(window=10)
    world.insert(tokens(100), swa_evicted=swa_evicted)
    match = world.match(tokens(100))
    assert (match.cached_len, match.full_hit_len) == (100, 100)
    assert match.mamba_branching_seqlen is None
    world.check()


@pytest.mark.parametrize("swa_evicted", [91, 100])
def test_a_prefix_with_a_hole_in_its_last_window_is_not(swa_evicted):
    world = World(window=10)
    world.insert(tokens(100), swa_evicted=swa_evicted)
    match = world.match(tokens(100))
    assert (match.cached_len, match.full_hit_len) == (0, 100)
    assert match.mamba_branching_seqlen == 100
    assert match.last_device_node is world.cache.root_node
    world.check()


def test_a_prefix_shorter_than_a_window_is_complete_from_the_root():
    world = World(window=10)
    world.insert(tokens(6))
    assert world.hit(tokens(6)) == 6


@pytest.mark.parametrize(
    ("num_shared", "expected"),
    [(79, 0), (80, 0), (85, 0), (89, 0), (90, 90), (91, 91), (99, 99), (100, 100)],
)
def test_a_match_needs_a_full_window_behind_it_once_there_is_a_hole(
    num_shared, expected
):
    world = World(window=10)
    world.insert(tokens(100), swa_evicted=80)
    match = world.match(branch(num_shared, 5, name=1))
    assert (match.cached_len, match.full_hit_len) == (expected, num_shared)
    world.check()


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(2, True), (2, False), (2, True), (2, False), (2, True)], 2),
        ([(3, True), (2, False), (2, True)], 3),
        ([(3, True), (2, False), (2, True), (2, True)], 9),
    ],
)
def test_live_runs_do_not_add_up_across_a_tombstone(runs, expected):
    world = live_chain(4, *runs)
    num_tokens = sum(length for length, _ in runs)
    assert [is_live for _, _, is_live in world.shape()] == [live for _, live in runs]
    assert world.hit(tokens(num_tokens)) == expected


def test_a_tombstone_is_run_into_once_in_a_match(monkeypatch):
    world = live_chain(50, (50, True), (2, False), *[(1, True)] * 40)
    calls = []
    window = SWAComponent._window
    monkeypatch.setattr(
        SWAComponent, "_window", lambda *args: calls.append(args) or window(*args)
    )
    assert world.hit(tokens(92)) == 50
    assert len(calls) <= 3  # the deepest node, the first below the hole, the refresh


# insert


def test_the_last_window_becomes_a_node_of_its_own():
    world = World(window=10)
    world.insert(tokens(100))
    assert world.shape() == [(90, True, True), (10, True, True)]
    world.lock(tokens(100))
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 100), (90, 10))
    world.check()


def test_what_left_the_window_is_a_tombstone():
    world = World(window=10)
    world.insert(tokens(100), swa_evicted=70)
    assert world.shape() == [(70, True, False), (20, True, True), (10, True, True)]
    assert world.sizes(SWA) == (30, 0)
    assert len(world.window.pairs) == 30
    world.check()


def test_the_last_window_is_whole_pages():
    world = World(window=10, page_size=4, num_slots=400)
    world.insert(tokens(40))
    assert world.shape() == [(28, True, True), (12, True, True)]
    assert world.hit(tokens(38)) == 36
    world.check()


def test_a_window_of_exactly_the_leaf_is_not_split():
    world = World(window=10)
    world.insert(tokens(10))
    assert world.shape() == [(10, True, True)]


def test_a_tombstone_is_healed_where_the_newcomer_is_live():
    world = World(window=10)
    world.insert(tokens(30), list(range(30)), swa_evicted=30)
    assert world.hit(tokens(30)) == 0
    assert len(world.window.pairs) == 0
    world.insert(tokens(30), list(range(100, 130)), swa_evicted=10)
    match = world.match(tokens(30))
    assert match.cached_len == 30
    assert list(match.device_indices) == list(range(30))
    assert world.pool.freed == [list(range(100, 130))]
    assert world.shape() == [(10, True, False), (10, True, True), (10, True, True)]
    assert sorted(world.window.pairs) == list(range(10, 30))
    assert world.sizes(SWA) == (20, 0)
    world.check()


def test_a_tombstone_inside_the_window_is_healed_as_a_whole():
    world = live_chain(4, (4, True), (4, False), (4, True))
    world.insert(tokens(12), list(range(100, 112)), swa_evicted=4)
    assert world.shape() == [(4, True, True)] * 3
    assert world.pool.freed == [list(range(100 + i, 104 + i)) for i in (0, 4, 8)]
    assert sorted(world.window.pairs) == list(range(12))
    world.check()


def test_a_tombstone_outside_the_window_stays_one():
    world = live_chain(4, (4, False), (4, True))
    world.insert(tokens(8), list(range(100, 108)), swa_evicted=4)
    assert world.shape() == [(4, True, False), (4, True, True)]
    assert sorted(world.window.pairs) == [4, 5, 6, 7]
    world.check()


def test_the_tree_own_slots_heal_nothing():
    world = live_chain(4, (4, True), (4, True))
    receipt = world.lock(tokens(8))
    world.unlock(receipt, SWA)
    world.evict(swa=8)
    assert world.shape() == [(4, True, False), (4, True, False)]
    own = world.pool.allocate(4)
    slots = array("i", range(8)) + own
    insert_own(world, 12, slots, prev=8, swa_evicted=0)
    assert world.shape() == [(4, True, False), (4, True, False), (4, True, True)]
    world.check()


def test_healing_begins_where_the_callers_own_slots_do():
    world = World(window=2)
    world.insert(tokens(4), [0, 1, 2, 3], swa_evicted=4)
    world.insert(tokens(4), [0, 1, 8, 9], prev=2)
    assert world.shape() == [(2, True, False), (2, True, True)]
    assert sorted(world.window.pairs) == [2, 3]
    world.check()


def test_healing_leaves_a_locked_full_value_alone():
    world = World(window=2)
    world.insert([1, 2], [0, 1], swa_evicted=2)
    receipt = world.cache.inc_lock_ref(world.match([1, 2]).last_device_node)
    (node,) = world.cache.nodes()
    receipt = world.cache.inc_lock_ref(node)
    world.insert([1, 2], [4, 5])
    assert list(node.value(FULL)) == [0, 1]
    assert world.pool.freed == [[4, 5]]
    assert world.sizes(SWA) == (0, 2)  # the lock was there before the data
    world.check()
    world.unlock(receipt)
    assert world.sizes(SWA) == (2, 0)
    world.check()


def test_a_leaf_outside_the_window_is_kept_and_matches_once_a_window_follows():
    world = World(window=2)
    world.insert([0, 1, 2, 3], [0, 1, 2, 3], swa_evicted=4)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((4, 0), (0, 0))
    assert world.hit([0, 1, 2, 3]) == 0
    slots = [0, 1, 2, 3, 4]
    world.insert(tokens(5), slots, prev=4, swa_evicted=4)
    assert world.hit(tokens(5)) == 0
    world.insert(tokens(6), [*slots, 5], prev=5, swa_evicted=4)
    assert world.hit(tokens(6)) == 6
    assert world.pool.freed == []
    world.check()


# lock


def test_a_lock_covers_the_last_window_and_its_part_can_go_early():
    world = chain(20, 40, 60)
    receipt = world.lock(tokens(60))
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 60), (50, 10))
    world.unlock(receipt, SWA)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 60), (60, 0))
    with pytest.raises(LockError, match="SWA part was released already"):
        world.unlock(receipt, SWA)
    world.unlock(receipt)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((60, 0), (60, 0))
    world.check()


def test_the_boundary_mark_moves_to_the_upper_half_at_every_split():
    world = live_chain(6, (2, True), (2, True), (4, True), (2, True))
    receipt = world.lock(tokens(10))
    assert world.locks(SWA) == [0, 0, 1, 1]
    for num_shared in (6, 5, 7):  # cuts the topmost locked node three times
        world.hit(branch(num_shared, 1, name=num_shared))
        world.check()
    assert world.locks(SWA) == [0, 0, 1, 1, 1, 1, 1]
    marks = [n.component_data[SWA].metadata for n in world.cache.nodes()]
    assert [mark is not None for mark in marks] == [False, False, True] + [False] * 4
    world.unlock(receipt)
    assert set(world.locks(SWA)) == {0}
    assert world.sizes(SWA) == (10, 0)
    world.check()


def test_two_locks_that_end_at_one_node_share_its_mark():
    world = live_chain(4, (4, True), (4, True), (2, True))
    first, second = world.lock(tokens(8)), world.lock(tokens(10))
    assert world.locks(SWA) == [0, 2, 1]
    world.hit(branch(6, 1, name=1))
    assert world.locks(SWA) == [0, 2, 2, 1]
    third = world.lock(tokens(10))
    assert world.locks(SWA) == [0, 2, 3, 2]
    for receipt in (first, third, second):
        world.unlock(receipt)
        world.check()
    assert world.sizes(SWA) == (10, 0)


def test_a_window_that_reaches_the_root_needs_no_mark():
    world = live_chain(8, (2, True), (2, True))
    receipt = world.lock(tokens(4))
    assert receipt.swa_uuid_for_lock is None
    assert world.locks(SWA) == [1, 1]
    world.hit(branch(1, 1, name=1))
    assert world.locks(SWA) == [1, 1, 1]
    world.unlock(receipt)
    assert world.sizes(SWA) == (4, 0)
    world.check()


def test_a_lock_runs_over_tombstones_and_moves_no_sizes_there():
    world = live_chain(6, (2, True), (2, False), (2, True))
    node = list(world.cache.nodes())[-1]
    receipt = world.cache.inc_lock_ref(node)
    assert world.locks(SWA) == [1, 1, 1]
    assert world.sizes(SWA) == (0, 4)
    world.unlock(receipt)
    assert world.sizes(SWA) == (4, 0)
    world.check()


def test_a_tombstone_fills_its_share_of_the_window():
    world = live_chain(4, (4, True), (2, False), (2, True))
    receipt = world.cache.inc_lock_ref(list(world.cache.nodes())[-1])
    assert world.locks(SWA) == [0, 1, 1]
    world.check()
    world.unlock(receipt)
    assert world.locks(SWA) == [0, 0, 0]


def test_no_mark_outlives_the_locks_of_its_node():
    world = live_chain(2, (2, True), (2, True), (2, True))
    first, second = world.lock(tokens(4)), world.lock(tokens(4))
    node = list(world.cache.nodes())[1]
    world.unlock(first)
    assert node.component_data[SWA].metadata == second.swa_uuid_for_lock
    world.unlock(second)
    assert node.component_data[SWA].metadata is None


# evict


def test_an_inner_node_becomes_a_tombstone():
    world = chain(20, 40, 60)
    assert world.evict(swa=1) == []
    assert world.sizes(SWA) == (50, 0)
    assert world.sizes(FULL) == (60, 0)
    assert [world.hit(tokens(end)) for end in (20, 40, 60)] == [20, 40, 60]
    world.check()


def test_an_unlocked_leaf_goes_as_a_whole():
    world = World(window=10)
    world.insert(tokens(5))
    world.insert(tokens(5, start=100))
    assert world.evict(swa=1) == [[0, 1, 2, 3, 4]]
    assert world.shape() == [(5, True, True)]
    world.check()


def test_a_locked_leaf_loses_its_window_and_stays():
    world = World(window=4)
    world.insert(tokens(4))
    receipt = world.lock(tokens(4))
    world.unlock(receipt, SWA)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 4), (4, 0))
    assert world.evict(swa=4) == []
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 4), (0, 0))
    world.check()
    world.unlock(receipt)
    assert world.sizes(FULL) == (4, 0)
    world.check()


def test_evicting_a_tombstone_moves_no_window_counter():
    world = World(window=4)
    world.insert(tokens(4), swa_evicted=4)
    assert list(world.component(SWA).lru_list) == []
    world.evict(full=4)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((0, 0), (0, 0))
    world.check()


def test_full_eviction_takes_the_window_along():
    world = World(window=4, num_window_slots=8)
    world.insert(tokens(4))
    world.evict(full=1)
    assert world.window.pairs == {}
    assert len(world.window.free_slots) == 8
    assert world.sizes(SWA) == (0, 0)
    world.check()


def test_eviction_steps_over_locked_nodes_and_ends():
    world = chain(4, 8, 12, window=4)
    receipt = world.lock(tokens(4))
    world.hit(tokens(12))
    assert world.locks(SWA) == [1, 0, 0]
    world.evict(swa=100)
    assert world.sizes(SWA) == (0, 4)
    world.unlock(receipt)
    world.evict(swa=100)
    assert world.sizes(SWA) == (0, 0)
    world.check()


def test_a_match_refreshes_the_last_window_only():
    world = chain(4, 8, 12, window=4)
    other = tokens(4, start=500)
    world.insert(other)
    world.hit(tokens(12))
    order = [len(n) for n in world.component(SWA).lru_list]
    assert order == [4, 4, 4, 4]
    first, second, last = list(world.cache.nodes())[:3]
    assert list(world.component(SWA).lru_list)[:2] == [first, second]
    assert list(world.component(SWA).lru_list)[-1] is last
    world.check()


def test_an_insert_refreshes_the_last_window_only():
    world = chain(4, 8, window=4)
    world.insert(tokens(4, start=500))
    first, second, other = world.cache.nodes()
    world.insert(tokens(8), list(range(8)), prev=8)
    assert list(world.component(SWA).lru_list) == [first, other, second]


def test_the_upper_half_of_a_split_is_just_older_than_the_lower():
    world = World(window=4)
    world.insert(tokens(4))
    world.insert(tokens(4, start=100))
    world.hit(branch(4, 1, name=1))
    world.cache.split_node(next(world.cache.nodes()), 2)
    upper, lower, other = world.cache.nodes()
    assert list(world.component(SWA).lru_list) == [other, upper, lower]


# a request's life


@pytest.mark.parametrize(
    ("key_len", "window", "page_size", "expected"),
    [(10, 2, 4, 4), (7, 3, 2, 2), (100, 10, 1, 90), (9, 10, 1, 0), (12, 4, 4, 8)],
)
def test_how_much_may_leave_the_window(key_len, window, page_size, expected):
    world = World(window=window, page_size=page_size, num_slots=400)
    assert world.component(SWA).max_evicted_seqlen(key_len) == expected
    world.insert(tokens(key_len), swa_evicted=expected)
    assert world.hit(tokens(key_len)) == key_len - key_len % page_size


def test_a_finished_request_leaves_its_live_window():
    world = World(window=4, num_window_slots=20)
    req = world.new_req(tokens(12))
    req.swa_evicted_seqlen = 8
    world.window.free(req.slots[:8])
    world.cache.cache_finished_req(req)
    assert world.shape() == [(8, True, False), (4, True, True)]
    assert len(world.window.free_slots) == 16
    world.check()


def test_a_frontier_inside_a_page_is_refused():
    world = World(window=4, page_size=4)
    req = world.new_req(tokens(12))
    req.swa_evicted_seqlen = 7
    with pytest.raises(InvalidKeyError, match="swa_evicted_seqlen is 7"):
        world.cache.cache_finished_req(req)
    assert world.shape() == []


def test_a_running_request_is_safe_even_where_it_could_not_match():
    world = World(window=4)
    req = world.new_req(tokens(8))
    req.swa_evicted_seqlen = 6
    world.window.free(req.slots[:6])
    world.cache.cache_unfinished_req(req)
    assert world.hit(tokens(8)) == 0
    assert world.sizes(FULL) == (0, 8)
    assert world.sizes(SWA) == (0, 2)
    world.evict(full=100, swa=100)
    assert world.sizes(FULL) == (0, 8)
    world.check()
    world.cache.cache_finished_req(req)
    assert (world.sizes(FULL), world.sizes(SWA)) == ((8, 0), (2, 0))


def test_the_row_of_a_healing_request_points_at_the_tree():
    world = World(window=4)
    world.insert(tokens(8), list(range(8)), swa_evicted=8)
    req = world.new_req(tokens(8))
    assert req.cache_protected_len == 0
    world.cache.cache_unfinished_req(req)
    assert list(req.slots) == list(range(8))
    assert sorted(world.window.pairs) == list(range(8))
    assert world.hit(tokens(8)) == 8
    world.check()


def test_a_window_must_be_positive():
    with pytest.raises(CacheConfigError, match="sliding_window_size is 0"):
        SWAComponent(None, 0)


def test_the_integrity_check_compares_list_and_nodes():
    world = World(window=4)
    world.insert(tokens(4))
    (node,) = world.cache.nodes()
    lru = world.component(SWA).lru_list
    lru.remove(node)
    with pytest.raises(IntegrityError, match="the SWA list and node 1 disagree"):
        world.check()
    lru.insert(node, None)
    world.check()
    lru.insert(UnifiedTreeNode(9, b"", 0, 3), None)
    with pytest.raises(IntegrityError, match="left the tree"):
        world.check()


def test_the_integrity_check_sees_a_window_without_full_data():
    world = World(window=4)
    world.insert(tokens(4))
    (node,) = world.cache.nodes()
    node.component_data[FULL].value = None
    with pytest.raises(IntegrityError, match="has SWA data but no FULL data"):
        world.check()


def test_pretty_print_shows_tombstones_locks_and_marks(capsys):
    world = World(window=2)
    world.insert([1, 2, 3], [0, 1, 2], swa_evicted=1)
    world.lock([1, 2, 3])
    world.cache.pretty_print()
    assert capsys.readouterr().out == (
        "root\n"
        "└─ [1]  full=[0] lock=1  swa=tombstone\n"
        "   └─ [2, 3]  full=[1, 2] lock=1  swa=[1, 2] lock=1 mark=1\n"
    )
