"""Chapter 7: the contract of a prefix cache, the naive one, and who owns which page.

The life of a request's pages is tested with a cache made for the purpose, which finds
and keeps whole pages, and with every cache of the package that does the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dict_cache import DictPrefixCache
from page_world import WatchedCache, World, watch
from serving import (
    Arrival,
    build_eos_model,
    greedy,
    new_llm,
    record,
    reference_traffic,
    replies_until_idle,
    serve,
)
from tiny_models import random_prompt

from minisgl.errors import EngineConfigError, IntegrityError
from minisgl.kvcache import PREFIX_CACHES, create_prefix_cache
from minisgl.kvcache.base import (
    BaseCacheHandle,
    BasePrefixCache,
    EvictionError,
    LockError,
)
from minisgl.kvcache.naive_cache import NaivePrefixCache

CPU = torch.device("cpu")
KEEPING_CACHES = ["made for the test", *(n for n in PREFIX_CACHES if n != "naive")]


def new_cache(name: str, page_size: int) -> BasePrefixCache:
    if name in PREFIX_CACHES:
        return create_prefix_cache(name, CPU, page_size)
    return DictPrefixCache(CPU, page_size)


@pytest.fixture(params=KEEPING_CACHES)
def new_world(request: pytest.FixtureRequest) -> Callable[..., World]:
    """new_world(num_pages, page_size=1): a CacheManager with a cache that keeps."""

    def make(num_pages: int, page_size: int = 1, **settings: Any) -> World:
        cache = new_cache(request.param, page_size)
        return World(num_pages, page_size, cache, **settings)

    return make


def hit(world: World, tokens: list[int]) -> array[int]:
    """The slots that the cache has for `tokens`."""
    return world.cache.match_prefix(array("i", tokens)).cuda_handle.matched_slots()


# --- the naive cache ------------------------------------------------------------------


def test_the_naive_cache_finds_and_keeps_nothing():
    cache = NaivePrefixCache(CPU, page_size=2)
    assert isinstance(cache, BasePrefixCache)
    result = cache.insert_prefix([1, 2, 3, 4], [0, 1, 2, 3])
    assert (result.cached_len, result.handle.cached_len) == (0, 0)
    handle = cache.match_prefix([1, 2, 3, 4]).cuda_handle
    assert isinstance(handle, BaseCacheHandle)
    assert (handle.cached_len, handle.matched_slots()) == (0, array("i"))
    assert handle.get_matched_indices().tolist() == []
    assert handle.get_matched_indices().dtype == torch.int32
    cache.lock_handle(handle)
    assert cache.size_info == (0, 0) and cache.held_slots() == array("i")
    cache.lock_handle(handle, unlock=True)
    cache.reset()
    cache.check_integrity()


def test_the_naive_cache_has_nothing_to_evict():
    cache = NaivePrefixCache(CPU)
    evicted = cache.evict(0)
    assert (evicted.tolist(), evicted.dtype) == ([], torch.int32)
    with pytest.raises(EvictionError, match="cannot evict 1 tokens: 0 are evictable"):
        cache.evict(1)


def test_a_cache_is_made_by_its_name():
    assert isinstance(create_prefix_cache("naive", CPU, 4), NaivePrefixCache)
    with pytest.raises(EngineConfigError, match="cache_type is 'fast'; it must be .*'"):
        create_prefix_cache("fast", CPU, 4)


def test_a_cache_has_to_keep_the_whole_contract():
    class Half(BasePrefixCache):
        def match_prefix(self, input_ids):
            raise NotImplementedError

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_with_the_naive_cache_pages_come_back_when_a_request_ends():
    world = World(8, 2, NaivePrefixCache(CPU, 2))
    a, b = world.admit([1, 2, 3, 4, 5], 3), world.admit([1, 2, 3, 4, 5], 3)
    assert (a.cached_len, b.cached_len) == (0, 0)
    world.prefill(a, b)
    assert world.row(a) == [0, 1, 2, 3, 4] and world.row(b) == [6, 7, 8, 9, 10]
    world.check()
    world.forward(a, b)
    world.release(a)
    world.check()
    assert world.free == [0, 1, 2, 6, 7]
    world.release(b)
    assert world.free == list(range(8)) and world.sizes == (16, 0, 0)


# --- what a request finds -------------------------------------------------------------


@pytest.mark.parametrize(("page_size", "reused"), [(1, 3), (2, 2), (4, 0)])
def test_a_prompt_that_is_cached_whole_still_computes_its_last_page(
    new_world: Any, page_size: int, reused: int
):
    world = new_world(12 // page_size, page_size)
    world.run([1, 2, 3, 4])
    assert world.sizes == (8, 4, 0)
    req = world.admit([1, 2, 3, 4])
    assert (req.cached_len, req.extend_len) == (reused, 4 - reused)
    assert req.reused_len == reused
    assert world.row(req) == [0, 1, 2, 3][:reused]
    assert world.sizes == (8, 4 - reused, reused)
    world.forward(req)
    world.release(req)
    world.check()
    assert world.sizes == (8, 4, 0), "the page computed again went back"


def test_only_what_can_be_reused_counts_as_room(new_world: Any):
    """A prompt of two pages, cached whole: the second is computed again, in a page of
    its own, and there must be one."""
    world = new_world(3, page_size=4)
    world.run([1, 2, 3, 4, 5, 6, 7, 8])
    keeper = world.cache.match_prefix(array("i", range(1, 9))).cuda_handle
    world.cache.lock_handle(keeper)
    assert world.sizes == (4, 0, 8)
    assert world.admit([1, 2, 3, 4, 5, 6, 7, 8], output_len=4) is None
    world.cache.lock_handle(keeper, unlock=True)
    req = world.admit([1, 2, 3, 4, 5, 6, 7, 8], output_len=4)
    assert req.cached_len == 4
    world.forward(req)
    world.check()
    assert world.row(req) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_the_prefix_a_request_reuses_does_not_count_as_room_for_it(new_world: Any):
    world = new_world(4)
    world.run([1, 2])
    world.run([7])
    assert world.sizes == (1, 3, 0)
    assert hit(world, [1, 2]).tolist() == [0, 1] and hit(world, [7]).tolist() == [2]
    assert world.admit([1, 2, 3, 4, 5]) is None, "4 more are needed; 1 + 1 can be had"
    assert world.sizes == (1, 3, 0), "and the prefix is released again"
    assert world.free == [3]
    world.check()


def test_a_request_refused_for_its_tokens_leaves_no_lock(new_world: Any):
    world = new_world(16)
    world.run([1, 2])
    assert world.admit([1, 2, 3, 4, 5], max_tokens=2) is None
    assert world.sizes == (14, 2, 0)
    req = world.admit([1, 2, 3, 4, 5], max_tokens=3)
    assert req.extend_len == 3, "what is reused does not count"


def test_two_prompts_of_one_batch_do_not_see_each_others_pages(new_world: Any):
    """Pages become visible once they are computed, not when they are handed out."""
    world = new_world(8, page_size=2)
    a, b = world.admit([1, 2, 3, 4]), world.admit([1, 2, 3, 5])
    assert (a.cached_len, b.cached_len) == (0, 0)
    world.forward(a, b)
    world.release(a, b)
    world.check()
    assert world.sizes == (16 - 6, 6, 0)
    assert hit(world, [1, 2, 3, 4]).tolist() == [0, 1, 2, 3]
    assert hit(world, [1, 2, 3, 5]).tolist() == [0, 1, 6, 7]
    assert world.free == [2, 4, 5, 6, 7], "page 2 held [1, 2] once more"


# --- what a request leaves ------------------------------------------------------------


def test_the_last_sampled_token_is_not_cached(new_world: Any):
    world = new_world(10)
    world.run([0, 1, 2, 3], answer=[4, 5])
    assert len(hit(world, [0, 1, 2, 3, 4, 5])) == 5
    assert world.sizes == (5, 5, 0)


def test_the_next_turn_of_a_conversation_finds_the_answer_before_it(new_world: Any):
    world = new_world(16, page_size=2)
    world.run([1, 2, 3], answer=[4, 5, 6, 7])  # 6 of these 7 tokens were computed
    req = world.admit([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert req.cached_len == 6
    world.prefill(req)
    world.check()


def test_a_page_that_is_not_full_is_freed_once(new_world: Any):
    world = new_world(2, page_size=4)
    world.run([1, 2, 3, 4, 5, 6, 7])
    assert world.sizes == (4, 4, 0) and world.free == [1]


def test_a_request_shorter_than_a_page_leaves_nothing(new_world: Any):
    world = new_world(2, page_size=4)
    req = world.admit([1, 2, 3], output_len=2)
    world.prefill(req)
    assert world.sizes == (4, 0, 0) and req.cache_handle.cached_len == 0
    world.release(req)
    world.check()
    assert world.sizes == (8, 0, 0)


def test_pages_of_an_aborted_request_are_cached_or_freed_up_to_the_last(new_world: Any):
    world = new_world(3, page_size=4)
    world.run([1, 2, 3, 4])
    req = world.admit([1, 2, 3, 4, 5, 6, 7, 8], output_len=4)
    assert req.cached_len == 4
    world.prefill(req)
    world.forward(req)
    assert world.sizes == (0, 0, 8)
    world.release(req)
    world.check()
    assert world.sizes == (4, 8, 0), "all three pages: none was lost at a boundary"


def test_pages_taken_for_tokens_never_computed_do_not_exist(new_world: Any):
    """A prompt that is aborted after two of its three slices leaves those two."""
    world = new_world(8)
    req = world.admit([1, 2, 3, 4, 5, 6], output_len=1)
    for _ in range(2):
        req.limit_chunk(2)
        world.prefill(req)
        world.check()
    assert world.sizes == (4, 0, 4)
    world.release(req)
    world.check()
    assert world.sizes == (4, 4, 0)
    assert len(hit(world, [1, 2, 3, 4, 5, 6])) == 4


def test_a_page_is_cached_only_when_its_tokens_are_final(new_world: Any):
    world = new_world(4, page_size=2)
    req = world.admit([1, 2, 8, 8], output_len=1)
    req.limit_chunk(2)
    world.prefill(req)
    assert len(hit(world, [1, 2, 8, 8])) == 2
    req.input_ids[2:] = array("i", [8, 9])
    world.prefill(req)
    world.check()
    assert world.sizes == (4, 0, 4), "four slots, each counted once"
    assert len(hit(world, [1, 2, 8, 8])) == 2
    assert len(hit(world, [1, 2, 8, 9])) == 4


def test_the_cache_keeps_its_own_copy_of_tokens_and_slots(new_world: Any):
    world = new_world(8)
    req = world.admit([1, 2, 3, 4])
    world.prefill(req)
    world.release(req)
    req.input_ids[0] = 77
    world.tables.write_slots(req.table_idx, 0, [6, 6, 6, 6])
    assert hit(world, [1, 2, 3, 4]).tolist() == [0, 1, 2, 3]
    hit(world, [1, 2, 3, 4])[0] = 6
    assert hit(world, [1, 2, 3, 4]).tolist() == [0, 1, 2, 3]
    world.check()


# --- the same prefix computed twice ---------------------------------------------------


def test_a_request_reads_the_pages_of_the_cache_before_its_copies_are_freed(
    new_world: Any,
):
    world = new_world(8)
    a, b = world.admit([1, 2, 3]), world.admit([1, 2, 3])
    world.forward(a, b)
    assert world.row(a) == [0, 1, 2] and world.row(b) == [3, 4, 5]
    world.pages.cache_unfinished(a)
    world.pages.cache_unfinished(b)  # the allocator of this world watches the order
    world.check()
    assert world.row(b) == [0, 1, 2]
    assert b.cache_handle.matched_slots().tolist() == [0, 1, 2]
    assert world.free == [3, 4, 5, 6, 7]
    world.release(a)
    assert world.sizes == (5, 0, 3), "b still holds on to what a brought"
    c = world.admit([7, 8, 9])
    world.forward(c)
    assert world.row(c) == [3, 4, 5], "the former pages of b"
    world.check()  # b reads what it computed, not what c wrote
    world.release(b, c)
    world.check()
    assert world.sizes == (2, 6, 0)


def test_only_the_part_that_is_there_twice_is_freed(new_world: Any):
    world = new_world(10, page_size=2)
    a, b = world.admit([1, 2, 3, 4]), world.admit([1, 2, 3, 4, 5, 6, 7])
    world.forward(a, b)
    assert world.row(b) == [4, 5, 6, 7, 8, 9, 10]
    world.pages.cache_unfinished(a)
    world.pages.cache_unfinished(b)
    world.check()
    assert world.row(b) == [0, 1, 2, 3, 8, 9, 10]
    assert b.cache_handle.cached_len == 6
    assert world.free == [2, 3, 6, 7, 8, 9], "page 5 is not full: b keeps it"
    world.release(b, a)
    world.check()
    assert world.sizes == (14, 6, 0)


def test_a_request_that_ends_in_its_first_step_gives_its_copies_back(new_world: Any):
    world = new_world(8)
    a, b = world.admit([1, 2, 3]), world.admit([1, 2, 3])
    world.forward(a, b)
    world.release(a, b)
    world.check()
    assert world.sizes == (5, 3, 0) and world.free == [3, 4, 5, 6, 7]


def test_two_equal_answers_are_kept_once(new_world: Any):
    world = new_world(16, page_size=2)
    a, b = world.admit([1, 2, 3], 5), world.admit([1, 2, 3], 5)
    world.prefill(a, b, token=4)
    for token in (5, 6, 7):
        world.forward(a, b, token=token)
        world.check()
    assert world.row(a)[:2] == world.row(b)[:2] == [0, 1]
    world.release(a, b)
    world.check()
    assert world.sizes == (26, 6, 0)


def test_a_page_is_freed_for_being_another_one_not_for_its_position(new_world: Any):
    """The cache holds the very pages of the request: they are no duplicates."""
    world = new_world(6)
    req = world.admit([1, 2, 3])
    world.forward(req)
    slots = world.tables.read_slots(req.table_idx, 0, 3)
    assert world.cache.insert_prefix(array("i", [1, 2, 3]), slots).cached_len == 0
    world.release(req)
    world.check()
    assert world.sizes == (3, 3, 0) and world.free == [3, 4, 5]


# --- locks ----------------------------------------------------------------------------


def test_a_request_is_protected_without_a_gap(new_world: Any):
    """The new prefix is locked before the old one is released."""
    world = new_world(8)
    cache = watch(world.pages)
    req = world.admit([1, 2, 3, 4])
    req.limit_chunk(2)
    world.prefill(req)
    world.prefill(req)
    assert cache.protected == [0, 2, 2, 4, 4]
    world.release(req)
    assert cache.protected == [0, 2, 2, 4, 4, 0]
    assert world.sizes == (4, 4, 0)


def test_a_shared_prefix_stays_until_its_last_reader_is_gone(new_world: Any):
    world = new_world(12)
    world.run([1, 2, 3])
    a, b = world.admit([1, 2, 3, 4], 2), world.admit([1, 2, 3, 5], 2)
    assert (a.cached_len, b.cached_len) == (3, 3)
    assert world.sizes == (9, 0, 3)
    world.prefill(a, b)
    world.release(a)
    world.check()
    assert world.sizes == (7, 1, 4)
    world.release(b)
    world.check()
    assert world.sizes == (7, 5, 0)
    with pytest.raises(LockError):
        world.cache.lock_handle(b.cache_handle, unlock=True)


# --- eviction -------------------------------------------------------------------------


def test_a_request_gets_the_pages_of_what_went_unused_for_longest(new_world: Any):
    world = new_world(6)
    for token in (1, 2, 3):
        world.run([token, token + 10])
    assert world.sizes == (0, 6, 0)
    assert len(hit(world, [1, 11])) == 2, "used just now"
    req = world.admit([7, 8])
    world.forward(req)
    assert sorted(world.row(req)) == [2, 3]
    assert [len(hit(world, [t, t + 10])) for t in (1, 2, 3)] == [2, 0, 2]
    world.check()


def test_no_more_is_evicted_than_is_missing(new_world: Any):
    world = new_world(4)
    world.run([1])
    world.run([2])
    assert world.sizes == (2, 2, 0)
    req = world.admit([7, 8])
    world.prefill(req)
    assert world.sizes == (0, 2, 2), "two pages were free: nothing had to go"
    world.release(req)
    req = world.admit([4, 5, 6])
    world.forward(req)
    assert [len(hit(world, [t])) for t in (1, 2)] == [0, 0]
    world.check()


def test_growing_inside_a_page_evicts_nothing_and_past_it_one_page(new_world: Any):
    world = new_world(4, page_size=64)
    req = world.admit(range(63), output_len=8)
    world.forward(req)
    for start in (100, 200, 300):
        world.run(list(range(start, start + 64)))
    assert world.sizes == (0, 192, 0)
    world.forward(req)  # 63 -> 64
    assert world.sizes == (0, 192, 0)
    world.forward(req)  # 64 -> 65
    assert world.sizes == (0, 128, 0)
    world.check()


def test_admission_counts_pages_that_could_be_evicted(new_world: Any):
    world = new_world(4, page_size=4)
    world.run([1, 2, 3, 4, 5, 6, 7, 8])
    assert world.sizes == (8, 8, 0) and world.pages.num_available == 4
    assert world.admit(range(50, 63), output_len=4) is None  # 17 tokens: 5 pages
    req = world.admit(range(50, 63), output_len=3)  # 16 tokens
    world.forward(req)
    world.check()
    assert world.sizes == (0, 0, 0)


def test_pages_promised_to_running_requests_are_not_given_away(new_world: Any):
    world = new_world(5, page_size=2)
    a = world.admit([1, 2, 3], output_len=5)  # 8 tokens: 4 pages in the end
    world.prefill(a)
    assert world.pages.num_reserved == 2
    assert world.admit([1, 2, 9], output_len=2) is None  # 5 tokens: 2 more pages
    b = world.admit([1, 2, 9], output_len=1)  # 4 tokens: 1 more page
    assert b.cached_len == 2
    world.forward(b)
    for _ in range(4):
        world.forward(a)
    world.check()
    world.release(a, b)
    world.check()


# --- the check ------------------------------------------------------------------------


def test_the_check_includes_that_of_the_cache(new_world: Any):
    class WrongInside(WatchedCache):
        def check_integrity(self) -> None:
            raise IntegrityError("the tree is upside down")

    world = new_world(8)
    world.pages.check_integrity()
    world.pages.prefix_cache = WrongInside(world.cache)
    with pytest.raises(IntegrityError, match="upside down"):
        world.pages.check_integrity()


def test_the_check_names_a_row_that_does_not_follow_the_cache(new_world: Any):
    world = new_world(8)
    req = world.admit([1, 2, 3])
    world.prefill(req)
    world.pages.check_integrity()
    world.tables.write_slots(req.table_idx, 1, [5])
    with pytest.raises(IntegrityError, match=r"row of request 1 .*\[0, 5, 2\] against"):
        world.pages.check_integrity()


def test_the_check_names_a_page_that_is_cached_and_free(new_world: Any):
    world = new_world(8)
    world.run([1, 2, 3])
    world.pages.allocator.free([1])
    with pytest.raises(IntegrityError, match="page 1 is held by the prefix cache, but"):
        world.pages.check_integrity()


def test_the_check_names_a_page_that_is_cached_and_a_requests_own(new_world: Any):
    world = new_world(8)
    world.run([1, 2, 3])
    req = world.admit([7, 8])
    world.forward(req)
    world.tables.write_slots(req.table_idx, 1, [2])
    with pytest.raises(IntegrityError, match="page 2 is held by request 2, but also"):
        world.pages.check_integrity()


def test_the_check_names_a_page_that_the_cache_has_lost(new_world: Any):
    world = new_world(8)
    world.run([1, 2, 3])
    world.cache.evict(3)  # and nobody frees them
    with pytest.raises(IntegrityError, match="page 0 is neither free nor in use"):
        world.pages.check_integrity()


# --- a whole engine -------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_eos_model(tmp_path_factory.mktemp("eos"))


@pytest.fixture(scope="module")
def traffic() -> tuple[Arrival, ...]:
    return reference_traffic()


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_sixty_requests_in_a_small_pool_are_answered_as_by_generate(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    num_pages = 128 // page_size
    settings = dict(page_size=page_size, num_page_override=num_pages)
    with new_llm(model_dir, cache_type="naive", **settings) as llm:
        forwards, pages = record(llm), llm.scheduler.pages
        served = serve(llm, traffic, after_step=pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        assert served.reused == [0] * 60
        used = [slot for f in forwards for slots in f.slots for slot in slots]
        assert len(used) > 8 * 128, "every slot was used again and again"
        assert len(set(used)) > 100 // page_size
        assert max(len(f.uids) for f in forwards if f.phase == "decode") >= 3
        assert pages.allocator.num_free == num_pages
        assert llm.scheduler.table.num_free == 8


@pytest.mark.parametrize("page_size", [1, 16])
def test_aborts_at_any_step_disturb_nobody(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    num_pages = 128 // page_size
    abort_at = {i: traffic[i].step + i % 7 for i in range(0, 60, 3)}
    settings = dict(page_size=page_size, num_page_override=num_pages)
    with new_llm(model_dir, cache_type="naive", **settings) as llm:
        pages = llm.scheduler.pages
        served = serve(llm, traffic, abort_at, after_step=pages.check_integrity)
        aborted = [i for i, why in enumerate(served.reasons) if why == "abort"]
        assert len(aborted) >= 10
        for index, arrival in enumerate(traffic):
            tokens = served.tokens[index]
            if index in aborted:
                assert tokens == arrival.answer[: len(tokens)]
            else:
                assert tokens == arrival.answer
        assert pages.allocator.num_free == num_pages


def test_a_prompt_that_comes_again_is_computed_again(model_dir: Path):
    with new_llm(model_dir, cache_type="naive") as llm:
        prompt = random_prompt(20, 1)
        for _ in range(2):
            (result,) = llm.generate(prompt, greedy(2))
            counts = ("prompt_tokens", "cached_tokens", "computed_tokens")
            assert [result[key] for key in counts] == [20, 0, 20]


def test_a_prompt_is_shared_once_it_is_computed_and_an_answer_when_it_ends(
    model_dir: Path,
):
    with new_llm(model_dir, cache_type="naive") as llm:
        scheduler = llm.scheduler
        cache = scheduler.pages.prefix_cache = DictPrefixCache(CPU, page_size=1)
        prompt, params = random_prompt(20, 1), greedy(6, ignore_eos=True)
        first = scheduler.add(prompt, params)
        for _ in range(4):  # the prompt, and three tokens more
            scheduler.step()
            assert cache.size_info == (0, 20)
        second = scheduler.add(prompt, params)
        tokens: dict[int, list[int]] = {first: [], second: []}
        for reply in replies_until_idle(llm):
            tokens[reply.uid].append(reply.token)
            assert reply.reused_len == (0 if reply.uid == first else 19)
        assert tokens[first] == tokens[second][-2:]
        assert cache.size_info == (25, 0)
        (third,) = llm.generate(prompt, greedy(1))
        counts = ("prompt_tokens", "cached_tokens", "computed_tokens")
        assert [third[key] for key in counts] == [20, 19, 1]


def test_an_unknown_cache_is_refused_by_name(model_dir: Path):
    with pytest.raises(EngineConfigError, match="cache_type is 'fast'; it must be"):
        new_llm(model_dir, cache_type="fast")
