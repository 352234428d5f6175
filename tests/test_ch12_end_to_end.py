"""Chapter 12: a whole engine for a model with sliding layers, under memory pressure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import Arrival, build_eos_model, greedy, record, reference_traffic, serve
from serving import new_llm as new_llm_of_any_cache
from tiny_models import hf_greedy, load_hf, random_prompt
from unified_serving import (
    POOL,
    assert_all_is_accounted_for,
    assert_answers,
    random_aborts,
    unified_llm,
    watch_evictions,
)

from minisgl.errors import EngineConfigError, IntegrityError, PromptError
from minisgl.kvcache.unified import ComponentType
from minisgl.llm import LLM

WINDOW = 8  # tokens, of the tiny model
SWA_POOL = 96


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_eos_model(tmp_path_factory.mktemp("eos"), "gemma3")


@pytest.fixture(scope="module")
def answer(model_dir: Path) -> Callable[[list[int], int], list[int]]:
    """How Hugging Face continues a prompt."""
    model = load_hf(model_dir)
    return lambda prompt, max_tokens: hf_greedy(model, prompt, max_tokens)


@pytest.fixture(scope="module")
def traffic() -> tuple[Arrival, ...]:
    return reference_traffic("gemma3")


def new_llm(
    model_dir: Path, page_size: int = 1, swa_pool: int = SWA_POOL, **more: Any
) -> LLM:
    num_swa_pages = swa_pool // page_size
    return unified_llm(
        model_dir, page_size, num_swa_page_override=num_swa_pages, **more
    )


def swa_held(llm: LLM) -> int:
    """Window slots that are not free."""
    swa = llm.engine.pools.swa
    return (swa.allocator.num_pages - swa.num_free) * swa.page_size


def evict_windows(llm: LLM, num_tokens: int) -> None:
    from minisgl.kvcache.unified import EvictParams

    llm.scheduler.pages.cache.evict(EvictParams(swa_num_tokens=num_tokens))


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_sixty_requests_that_share_prefixes_are_answered_as_by_generate(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    with new_llm(model_dir, page_size) as llm:
        forwards, evicted = record(llm), watch_evictions(llm)
        served = serve(llm, traffic, after_step=llm.scheduler.pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        num_evicted = dict(evicted)
        assert_all_is_accounted_for(llm)
    computed = sum(sum(f.lens) for f in forwards if f.phase == "prefill")
    assert computed + sum(served.reused) == sum(len(a.prompt) for a in traffic)
    assert sum(n > 0 for n in served.reused) >= 20
    assert num_evicted[ComponentType.FULL] > 100
    assert num_evicted[ComponentType.SWA] > 100
    assert max(len(f.uids) for f in forwards if f.phase == "decode") >= 2


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(("pool", "swa_pool"), [(POOL, 1024), (1024, SWA_POOL)])
def test_each_pool_alone_may_be_the_one_that_runs_short(
    model_dir: Path,
    traffic: tuple[Arrival, ...],
    page_size: int,
    pool: int,
    swa_pool: int,
):
    settings = dict(page_size=page_size, pool=pool, swa_pool=swa_pool)
    with new_llm(model_dir, **settings) as llm:
        evicted = watch_evictions(llm)
        served = serve(llm, traffic, after_step=llm.scheduler.pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        is_full_short = pool < swa_pool
        assert (evicted[ComponentType.FULL] > 0) == is_full_short
        assert (evicted[ComponentType.SWA] > 0) == (not is_full_short)
        assert_all_is_accounted_for(llm)
    assert sum(served.reused) > 200


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_aborts_at_any_step_disturb_nobody(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int, start: int
):
    with new_llm(model_dir, page_size) as llm:
        check, abort_at = (
            llm.scheduler.pages.check_integrity,
            random_aborts(traffic, start),
        )
        served = serve(llm, traffic, abort_at, after_step=check)
        assert_all_is_accounted_for(llm)
    assert served.reasons.count("abort") >= 10
    assert_answers(served, traffic)


# --- window slots are freed early -----------------------------------------------------


@pytest.mark.parametrize(("page_size", "most"), [(1, 3 + 9), (4, 12), (16, 32)])
def test_an_answer_of_any_length_needs_the_window_and_a_page(
    model_dir: Path, answer: Any, page_size: int, most: int
):
    """The tree keeps the whole pages of the prompt as long as nobody needs the room."""
    prompt, held = random_prompt(3, 1), []
    with new_llm(model_dir, page_size, swa_pool=32) as llm:
        uid = llm.scheduler.add(prompt, greedy(100, ignore_eos=True))
        tokens = []
        while not llm.scheduler.is_idle:
            tokens += [reply.token for reply in llm.scheduler.step()]
            held.append(swa_held(llm))
            llm.scheduler.pages.check_integrity()
        assert_all_is_accounted_for(llm)
    expected = answer(prompt, 100)
    assert uid == 0 and len(tokens) == 100
    assert tokens[: len(expected)] == expected
    assert max(held) == most


def test_the_window_of_a_long_prompt_is_unlocked_once_the_answer_has_left_it(
    model_dir: Path, answer: Any
):
    prompt = random_prompt(40, 1)
    with new_llm(model_dir) as llm:
        cache, scheduler = llm.scheduler.pages.cache, llm.scheduler
        scheduler.add(prompt, greedy(30, ignore_eos=True))
        tokens, locked = [], []
        while not scheduler.is_idle:
            tokens += [reply.token for reply in scheduler.step()]
            locked.append(cache.protected_size(ComponentType.SWA))
            if len(tokens) == 12:  # nobody sees the prompt any more
                evict_windows(llm, 40)
                assert cache.evictable_size(ComponentType.SWA) == 0
                assert cache.protected_size(ComponentType.FULL) == 40
                scheduler.pages.check_integrity()
    assert locked[:9] == [WINDOW] * 9
    assert set(locked[9:]) == {0}
    expected = answer(prompt, 30)
    assert tokens[: len(expected)] == expected


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_last_window_of_an_answer_is_kept_for_the_next_turn(
    model_dir: Path, answer: Any, page_size: int
):
    prompt = random_prompt(12, 1)
    with new_llm(model_dir, page_size) as llm:
        (result,) = llm.generate(prompt, greedy(21, ignore_eos=True))
        history = prompt + result["token_ids"]
        computed_len = 12 + 20  # the last token was never computed
        evict_windows(llm, swa_held(llm) - WINDOW)  # the oldest: those of the prompt
        assert swa_held(llm) == WINDOW
        (result,) = llm.generate(history + [7], greedy(5))
        assert result["cached_tokens"] == computed_len
        assert result["token_ids"] == answer(history + [7], 5)


def test_a_prefix_without_its_window_is_computed_again_and_healed(
    model_dir: Path, answer: Any
):
    prompt = random_prompt(40, 1)
    with new_llm(model_dir) as llm:
        llm.generate(prompt, greedy(20, ignore_eos=True))
        cached = []
        evict_windows(llm, 1000)
        tree_tokens = llm.scheduler.pages.cache.evictable_size()
        assert tree_tokens == 59 - WINDOW, "the last window was a leaf, and is gone"
        assert swa_held(llm) == 0
        for _ in range(2):
            (result,) = llm.generate(prompt, greedy(6))
            assert result["token_ids"] == answer(prompt, 6)
            cached.append(result["cached_tokens"])
            llm.scheduler.pages.check_integrity()
        assert llm.scheduler.pages.cache.evictable_size() == tree_tokens
    assert cached == [0, 39]


# --- admission counts both pools ------------------------------------------------------


def test_a_request_waits_for_window_pages(model_dir: Path, answer: Any):
    """Two prompts of 20 tokens do not fit in 45 window slots with their answers."""
    prompts = [random_prompt(20, 1), random_prompt(20, 2)]
    with new_llm(model_dir, swa_pool=45) as llm:
        forwards = record(llm)
        results = llm.generate(prompts, greedy(8, ignore_eos=True))
        assert_all_is_accounted_for(llm)
    assert [f.uids for f in forwards if f.phase == "prefill"] == [[0], [1]]
    for prompt, result in zip(prompts, results, strict=True):
        expected = answer(prompt, 8)
        assert result["token_ids"][: len(expected)] == expected


def test_a_request_that_is_refused_changes_nothing(model_dir: Path):
    opening = random_prompt(20, 1)
    with new_llm(model_dir, swa_pool=58) as llm:
        pages, scheduler = llm.scheduler.pages, llm.scheduler
        llm.generate(opening, greedy(1))
        scheduler.add(random_prompt(25, 2), greedy(20, ignore_eos=True))
        scheduler.step()
        cache = pages.cache
        scheduler.add(opening + random_prompt(25, 3), greedy(20))

        def sizes() -> list[int]:
            kinds = (ComponentType.FULL, ComponentType.SWA)
            counts = [cache.evictable_size(kind) for kind in kinds]
            counts += [cache.protected_size(kind) for kind in kinds]
            return [*counts, len(cache.receipts), pages.allocator.num_free]

        before = sizes()
        assert scheduler.prefill.schedule_next_batch() is None
        assert sizes() == before
        assert scheduler.prefill.pending and scheduler.table.num_free == 7
        pages.check_integrity()


def test_a_prompt_that_the_window_pool_can_never_hold_is_refused(model_dir: Path):
    with new_llm(model_dir, page_size=4, swa_pool=32) as llm:
        with pytest.raises(PromptError) as error:
            llm.scheduler.add(random_prompt(24, 1), greedy(12))
        assert str(error.value) == (
            "24 tokens of prompt and up to 12 of answer need 9 window pages of 4 "
            "tokens, and there are 8; shorten the prompt or raise "
            "num_swa_page_override"
        )
        (result,) = llm.generate(random_prompt(20, 1), greedy(12, ignore_eos=True))
        assert len(result["token_ids"]) == 12


@pytest.mark.parametrize("cache_type", ["naive", "radix"])
def test_sliding_layers_need_the_unified_cache(model_dir: Path, cache_type: str):
    with pytest.raises(EngineConfigError) as error:
        new_llm_of_any_cache(model_dir, cache_type=cache_type)
    assert str(error.value) == (
        f"cache_type is {cache_type!r}; a model with layers of the kind "
        "'sliding_attention' needs 'unified'"
    )


# --- what is noticed ------------------------------------------------------------------


def test_a_window_page_too_many_or_too_few_is_noticed(model_dir: Path):
    with new_llm(model_dir) as llm:
        pages, swa = llm.scheduler.pages, llm.engine.pools.swa
        llm.generate(random_prompt(5, 1), greedy(3, ignore_eos=True))
        pages.check_integrity()
        free = pages.allocator.free_pages[0]
        swa.allocate([free])
        with pytest.raises(IntegrityError, match="and nobody needs it"):
            pages.check_integrity()
        swa.free([free])
        pages.check_integrity()
        node = next(pages.cache.nodes())
        lost = node.value(ComponentType.SWA)[:1]
        swa.free(lost)
        with pytest.raises(IntegrityError, match=r"is -1, and node \d of the prefix"):
            pages.check_integrity()
        swa.allocate(lost)
        pages.check_integrity()
