"""Chapter 13: recurrent states in the unified tree."""

from __future__ import annotations

from array import array

import pytest
from unified_world import FULL, MAMBA, SWA, World, branch, tokens

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import EvictParams, EvictResult, InsertParams
from minisgl.kvcache.unified.tree_component import CacheConfigError


def world_with_states(*ends, grid=4, num_states=8, **kwargs):
    """A chain of nodes with a state at each of these lengths."""
    world = World(num_states=num_states, grid=grid, **kwargs)
    slots, begin = [], 0
    for end in ends:
        slots += range(begin, end)
        world.insert(tokens(end), slots[:], prev=begin, state=f"state after {end}")
        begin = end
    return world


def look(world, num_tokens):
    match = world.match(tokens(num_tokens))
    return match.cached_len, match.full_hit_len, match.mamba_branching_seqlen


def state_at(world, num_tokens):
    """The content of the state that a match of so many tokens ends with."""
    node = world.match(tokens(num_tokens)).last_device_node
    (slot,) = node.value(MAMBA)
    return world.states.content[slot]


def all_sizes(world):
    return [world.sizes(kind) for kind in (FULL, SWA, MAMBA)]


# match


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (10, (0, 10, 8)),
        (20, (20, 20, None)),
        (30, (20, 30, 28)),
        (50, (50, 50, None)),
    ],
)
def test_a_prefix_is_usable_where_a_state_is(num_tokens, expected):
    world = world_with_states(20, 50)
    assert look(world, num_tokens) == expected
    world.check()


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [(20, (0, 20, 20)), (30, (0, 30, 28)), (50, (50, 50, None))],
)
def test_evicting_the_older_state_makes_its_length_a_branching_point(
    num_tokens, expected
):
    world = world_with_states(20, 50)
    world.evict(mamba=1)
    assert world.sizes(FULL) == (50, 0)
    assert look(world, num_tokens) == expected
    world.check()


def test_a_branching_point_lies_beyond_what_is_usable_already():
    world = world_with_states(22, 40)
    assert look(world, 23) == (22, 23, None)  # the grid has 20, then 24
    assert look(world, 24) == (22, 24, 24)


def test_two_branches_without_a_state_where_they_part():
    world = World(num_states=8)
    world.insert(branch(20, 10, name=1), state="1")
    world.insert(branch(20, 10, name=2), state="2")
    match = world.match(branch(20, 10, name=3))
    assert (match.cached_len, match.mamba_branching_seqlen) == (0, 20)
    assert match.last_device_node is world.cache.root_node
    world.check()


# insert


def test_a_second_state_for_the_same_key_stays_with_the_caller():
    world = World(num_states=8)
    assert not world.insert(tokens(20), state="first").mamba_exist
    assert world.insert(tokens(20), state="second").mamba_exist
    assert world.states.content == {0: "first"}
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def test_a_state_joins_tokens_that_had_none():
    world = World(num_states=8)
    world.insert(tokens(20))
    assert not world.insert(tokens(20), state="late").mamba_exist
    assert look(world, 20) == (20, 20, None)
    assert not world.insert(tokens(8), state="midway").mamba_exist
    assert (look(world, 8), state_at(world, 8)) == ((8, 8, None), "midway")
    world.check()


def test_a_state_is_not_kept_for_a_length_that_is_no_node_end():
    world = World(num_states=8, page_size=4)
    assert world.insert(tokens(5), state="after 5").mamba_exist
    assert look(world, 5) == (0, 4, 4)
    assert world.insert([], state="after 0").mamba_exist
    assert world.states.content == {}
    world.check()


def test_a_state_without_a_live_window_is_not_kept():
    world = World(num_states=8, window=4)
    assert world.insert(tokens(8), swa_evicted=8, state="s").mamba_exist
    assert world.shape() == [(8, True, False, False)]
    assert not world.insert(tokens(8), swa_evicted=4, state="s").mamba_exist
    assert world.hit(tokens(8)) == 8
    world.check()


def test_the_caller_state_array_is_copied():
    world = World(num_states=8)
    value = array("i", [3])
    params = InsertParams(RadixKey([5]), world.pool.take([9]), mamba_value=value)
    world.cache.insert(params)
    value[0] = 7
    assert list(world.match([5]).last_device_node.value(MAMBA)) == [3]


# split and lock


def test_state_and_state_lock_stay_with_the_lower_half():
    world = World(num_states=8)
    world.insert([1, 2, 3, 4], state="s@4")
    receipt = world.lock([1, 2, 3, 4])
    match = world.match([1, 2, 9])
    assert (match.cached_len, match.mamba_branching_seqlen) == (0, 2)
    upper, lower = world.cache.nodes()
    assert (upper.value(MAMBA), lower.value(MAMBA)) == (None, array("i", [0]))
    assert (world.locks(MAMBA), world.locks(FULL)) == ([0, 1], [1, 1])
    assert world.hit([1, 2, 3, 4]) == 4
    world.unlock(receipt)
    assert (world.locks(MAMBA), world.locks(FULL)) == ([0, 0], [0, 0])
    world.check()


def test_a_lock_covers_one_state():
    world = world_with_states(20, 50)
    receipt = world.lock(tokens(50))
    assert world.sizes(MAMBA) == (1, 1)
    world.evict(mamba=5)
    assert world.shape() == [(20, True, False), (30, True, True)]
    assert world.sizes(MAMBA) == (0, 1)
    world.unlock(receipt)
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def test_a_lock_without_a_state_covers_the_one_that_comes():
    world = World(num_states=8)
    world.insert(tokens(4))
    node = next(world.cache.nodes())
    receipt = world.cache.inc_lock_ref(node)
    world.insert(tokens(4), state="s")
    assert world.sizes(MAMBA) == (0, 1)
    world.check()
    world.unlock(receipt)
    assert world.sizes(MAMBA) == (1, 0)


def test_releasing_the_window_releases_the_state_that_it_would_take_along():
    world = world_with_states(8, window=4)
    receipt = world.lock(tokens(8))
    assert all_sizes(world) == [(0, 8), (4, 4), (0, 1)]
    world.unlock(receipt, SWA)
    assert all_sizes(world) == [(0, 8), (8, 0), (1, 0)]
    world.evict(swa=8)
    assert all_sizes(world) == [(0, 8), (0, 0), (0, 0)]
    world.check()
    world.unlock(receipt)
    assert world.sizes(FULL) == (8, 0)
    world.check()


# evict


def test_an_inner_node_loses_its_state_only():
    world = world_with_states(4, 8, window=2)
    assert world.cache.evict(EvictParams(mamba_num=1)) == EvictResult(0, 0, 1)
    world.check()


def test_an_unlocked_leaf_goes_with_its_state():
    world = world_with_states(4)
    assert world.evict(mamba=1) == [[0, 1, 2, 3]]
    assert world.states.content == {}
    assert world.shape() == []


def test_evicting_the_window_takes_the_state_and_not_the_other_way_round():
    world = world_with_states(4, 8, window=4)
    world.evict(mamba=1)
    assert world.shape() == [(4, True, True, False), (4, True, True, True)]
    world.evict(swa=1)
    assert world.shape() == [(4, True, False, False), (4, True, True, True)]
    world.check()
    world = world_with_states(4, 8, window=4)
    world.evict(swa=1)
    assert world.shape() == [(4, True, False, False), (4, True, True, True)]
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def test_a_match_refreshes_the_state_it_uses_only():
    world = world_with_states(4, 8)
    world.insert([500], state="other")
    assert world.hit(tokens(8)) == 8
    slots = [node.value(MAMBA)[0] for node in world.component(MAMBA).lru_list]
    assert [world.states.content[slot] for slot in slots] == [
        "state after 4",
        "other",
        "state after 8",
    ]


def test_an_insert_refreshes_the_state_at_its_end():
    world = world_with_states(4, 8)
    world.insert([500], state="other")
    world.insert(tokens(4), list(range(4)), prev=4)
    slots = [node.value(MAMBA)[0] for node in world.component(MAMBA).lru_list]
    assert [world.states.content[slot] for slot in slots] == [
        "state after 8",
        "other",
        "state after 4",
    ]


# a request's life


def test_a_request_works_on_a_copy_of_the_state():
    world = world_with_states(20)
    req = world.new_req(tokens(25))
    match = world.match(tokens(24), req=req)
    assert match.cached_len == 20
    assert (req.mamba_pool_idx, req.mamba_seqlen) == (1, 20)
    assert world.states.content == {0: "state after 20", 1: "state after 20"}
    world.states.content[req.mamba_pool_idx] = "changed"
    assert state_at(world, 20) == "state after 20"


def test_a_request_with_a_slot_keeps_it():
    world = world_with_states(20)
    req = world.new_req(tokens(25))
    req.mamba_pool_idx = world.component(MAMBA).allocate_state()
    world.match(tokens(24), req=req)
    assert world.states.content == {0: "state after 20", 1: "state after 20"}


def test_a_copy_evicts_another_state_if_need_be_and_never_the_one_it_needs():
    world = World(num_states=2)
    world.insert(tokens(4), state="a")
    world.insert([500], state="b")
    assert world.hit([500]) == 1
    req = world.new_req([*tokens(3), 77])
    assert world.states.content == {0: "a", 1: "b"}
    world.match(tokens(4), req=req)
    assert world.states.content == {0: "a", 1: "a"}
    assert world.hit([500]) == 0
    world.check()


def test_a_request_goes_without_when_all_states_are_in_use():
    world = World(num_states=1)
    world.insert(tokens(4), state="a")
    receipt = world.lock(tokens(4))
    req = world.new_req([*tokens(4), 7])
    world.match(tokens(4), req=req)
    assert req.mamba_pool_idx is None
    assert world.component(MAMBA).allocate_state() is None
    assert world.states.content == {0: "a"}
    world.unlock(receipt)
    world.check()


def test_a_copy_never_takes_the_slot_of_the_state_that_is_to_be_copied():
    world = World(num_states=1)
    world.insert(tokens(4), state="a")
    req = world.new_req([*tokens(3), 7])
    assert world.match(tokens(4), req=req).cached_len == 4
    assert req.mamba_pool_idx is None
    assert world.states.content == {0: "a"}
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def running(world, num_tokens, state_len=None):
    """A request that has computed `num_tokens`; its state stands for `state_len`."""
    req = world.new_req(tokens(num_tokens))
    if req.mamba_pool_idx is None:
        req.mamba_pool_idx = world.component(MAMBA).allocate_state()
    req.mamba_seqlen = num_tokens if state_len is None else state_len
    world.states.content[req.mamba_pool_idx] = f"state after {req.mamba_seqlen}"
    return req


def add_checkpoint(world, req, num_tokens):
    req.mamba_track_idx = world.component(MAMBA).allocate_state()
    req.mamba_last_track_seqlen = num_tokens
    world.states.content[req.mamba_track_idx] = f"state after {num_tokens}"


def test_a_finished_request_donates_its_state():
    world = World(num_states=2)
    req = running(world, 10)
    world.cache.cache_finished_req(req)
    assert req.mamba_pool_idx is None
    assert look(world, 10) == (10, 10, None)
    assert world.states.content == {0: "state after 10"}
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def test_a_running_request_donates_a_copy():
    world = World(num_states=2)
    req = running(world, 10)
    world.cache.cache_unfinished_req(req)
    assert world.states.content == {0: "state after 10", 1: "state after 10"}
    assert req.mamba_pool_idx == 0
    assert world.sizes(MAMBA) == (0, 1)
    world.check()
    world.cache.cache_finished_req(req)
    assert world.states.content == {1: "state after 10"}
    world.check()


def test_a_running_request_without_a_free_state_caches_its_tokens_alone():
    world = World(num_states=1)
    req = running(world, 10)
    world.cache.cache_unfinished_req(req)
    assert world.sizes(FULL) == (0, 10)
    assert look(world, 10) == (0, 10, 10)
    world.cache.cache_finished_req(req)
    assert look(world, 10) == (10, 10, None)
    world.check()


def test_a_checkpoint_goes_in_at_exactly_its_length():
    world = World(num_states=4)
    req = running(world, 10)
    add_checkpoint(world, req, 8)
    world.cache.cache_unfinished_req(req)
    assert (req.cache_protected_len, req.mamba_track_idx) == (8, None)
    assert look(world, 10) == (8, 8, None)
    assert state_at(world, 8) == "state after 8"
    world.cache.cache_unfinished_req(req)  # and now the end
    assert req.cache_protected_len == 10
    assert state_at(world, 10) == "state after 10"
    world.check()


def test_a_state_that_ends_inside_a_page_is_not_stored_under_the_page():
    world = World(num_states=4, page_size=4, num_slots=100)
    req = running(world, 9)
    world.cache.cache_finished_req(req)
    assert look(world, 9) == (0, 8, 8)
    assert world.states.content == {}
    assert world.sizes(FULL) == (8, 0)
    world.check()


def test_a_state_one_ahead_of_the_tokens_is_not_stored():
    world = World(num_states=4)
    req = running(world, 10, state_len=9)
    world.cache.cache_finished_req(req)
    assert look(world, 10) == (0, 10, 10)
    assert world.states.content == {}


def test_a_finished_request_falls_back_on_its_checkpoint():
    world = World(num_states=4, page_size=4, num_slots=100)
    req = running(world, 9)
    add_checkpoint(world, req, 4)
    world.cache.cache_finished_req(req)
    assert look(world, 9) == (4, 4, None)
    assert world.states.content == {1: "state after 4"}
    assert world.pool.freed == [list(range(4, 12))]
    world.check()


def test_a_checkpoint_behind_what_the_tree_owns_frees_only_the_requests_slots():
    world = World(num_states=4)
    req = running(world, 8)
    world.cache.cache_unfinished_req(req)
    req.token_ids += array("i", [8, 9])
    req.slots += world.pool.allocate(2)
    add_checkpoint(world, req, 4)
    world.cache.cache_finished_req(req)
    assert world.pool.freed == [[8, 9]]
    assert [look(world, length)[0] for length in (4, 8, 10)] == [4, 8, 8]
    world.check()


def test_a_checkpoint_behind_what_a_running_request_has_cached_changes_nothing():
    world = World(num_states=4)
    req = running(world, 8)
    world.cache.cache_unfinished_req(req)
    add_checkpoint(world, req, 4)
    world.cache.cache_unfinished_req(req)
    assert (req.cache_protected_len, len(world.states.content)) == (8, 2)
    world.check()


def test_checkpoints_share_within_a_prompt_asked_again():
    world = World(num_states=8, page_size=4, num_slots=100)
    req = running(world, 8)
    add_checkpoint(world, req, 4)
    world.cache.cache_unfinished_req(req)
    world.cache.cache_finished_req(req)
    assert world.match(tokens(8)[:-1]).cached_len == 4
    world.check()


def test_a_dropped_request_gives_back_both_slots():
    world = World(num_states=4)
    req = running(world, 10)
    add_checkpoint(world, req, 8)
    world.cache.cache_finished_req(req, is_insert=False)
    assert world.states.content == {}
    assert (req.mamba_pool_idx, req.mamba_track_idx) == (None, None)
    assert world.shape() == []


def test_a_state_that_the_tree_has_already_is_given_back():
    world = World(num_states=4)
    first, second = running(world, 10), running(world, 10)
    world.cache.cache_unfinished_req(first)
    world.cache.cache_unfinished_req(second)
    assert world.sizes(MAMBA) == (0, 1)
    assert len(world.states.content) == 3
    for req in (first, second):
        world.cache.cache_finished_req(req)
    assert world.states.content == {2: "state after 10"}
    assert world.sizes(MAMBA) == (1, 0)
    world.check()


def test_nothing_new_to_cache_copies_no_state():
    world = World(num_states=4)
    req = running(world, 10)
    world.cache.cache_unfinished_req(req)
    world.insert([500], state="other")
    world.insert([501], state="another")
    assert world.states.free_slots == []
    world.cache.cache_unfinished_req(req)  # needs no room, so it evicts nothing
    assert (world.hit([500]), world.hit([501])) == (1, 1)


def test_a_grid_must_fit_the_pages():
    with pytest.raises(CacheConfigError, match="checkpoint_grid is 6"):
        World(num_states=1, page_size=4, grid=6)
    assert World(num_states=1, page_size=4).component(MAMBA).checkpoint_grid == 4


def test_the_integrity_check_sees_a_state_without_a_window():
    world = world_with_states(4, window=4)
    (node,) = world.cache.nodes()
    node.component_data[SWA].value = None
    with pytest.raises(IntegrityError, match="has MAMBA data but no SWA data"):
        world.check()
