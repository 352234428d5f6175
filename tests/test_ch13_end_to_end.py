"""Chapter 13: a whole engine for a model with recurrent states, under pressure."""

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

from minisgl.errors import EngineConfigError, IntegrityError
from minisgl.kvcache.unified import ComponentType, EvictParams
from minisgl.llm import LLM

NUM_STATES = {1: 10, 4: 10, 16: 6}  # by page size: larger pages hold fewer states


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_eos_model(tmp_path_factory.mktemp("eos"), "qwen3_5")


@pytest.fixture(scope="module")
def answer(model_dir: Path) -> Callable[[list[int], int], list[int]]:
    """How Hugging Face continues a prompt."""
    model = load_hf(model_dir)
    return lambda prompt, max_tokens: hf_greedy(model, prompt, max_tokens)


@pytest.fixture(scope="module")
def traffic() -> tuple[Arrival, ...]:
    return reference_traffic("qwen3_5")


def new_llm(
    model_dir: Path, page_size: int = 1, num_states: int | None = None, **more: Any
) -> LLM:
    num_states = num_states or NUM_STATES[page_size]
    return unified_llm(model_dir, page_size, num_state_override=num_states, **more)


def num_cached_states(llm: LLM) -> int:
    cache = llm.scheduler.pages.cache
    kind = ComponentType.MAMBA
    return cache.evictable_size(kind) + cache.protected_size(kind)


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
    assert num_evicted[ComponentType.MAMBA] > 20
    assert max(len(f.uids) for f in forwards if f.phase == "decode") >= 2


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(("pool", "num_states"), [(POOL, 200), (4096, 6)])
def test_each_pool_alone_may_be_the_one_that_runs_short(
    model_dir: Path,
    traffic: tuple[Arrival, ...],
    page_size: int,
    pool: int,
    num_states: int,
):
    settings = dict(page_size=page_size, pool=pool, num_states=num_states)
    with new_llm(model_dir, **settings) as llm:
        evicted = watch_evictions(llm)
        served = serve(llm, traffic, after_step=llm.scheduler.pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        is_full_short = pool == POOL
        assert (evicted[ComponentType.FULL] > 0) == is_full_short
        assert (evicted[ComponentType.MAMBA] > 0) == (not is_full_short)
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


@pytest.mark.parametrize("page_size", [1, 4])
def test_two_states_are_enough_to_serve_one_request_after_the_other(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    """One that is cached, and one to work on."""
    with new_llm(model_dir, page_size, num_states=2) as llm:
        forwards = record(llm)
        served = serve(llm, traffic, after_step=llm.scheduler.pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        assert_all_is_accounted_for(llm)
    assert max(len(f.uids) for f in forwards) == 2
    assert sum(served.reused) > 0


# --- where states are kept ------------------------------------------------------------


def test_the_next_turn_of_a_conversation_goes_on_from_the_final_state(
    model_dir: Path, answer: Any
):
    history, computed = random_prompt(12, 1), []
    with new_llm(model_dir) as llm:
        for turn in range(4):
            (result,) = llm.generate(history, greedy(5, ignore_eos=True))
            expected = answer(history, 5)
            assert result["token_ids"][: len(expected)] == expected
            computed.append(result["computed_tokens"])
            history = history + result["token_ids"] + random_prompt(3, turn)
    assert computed == [12, 4, 4, 4]  # the last sampled token and the three new ones


def test_the_state_at_the_end_of_a_prompt_is_there_while_it_is_answered(
    model_dir: Path, answer: Any
):
    """The second request comes while the first one runs, and goes on from its prompt;
    both write to states of their own."""
    prompt = random_prompt(12, 1)
    longer = prompt + random_prompt(3, 2)
    with new_llm(model_dir) as llm:
        scheduler = llm.scheduler
        params = greedy(8, ignore_eos=True)
        uids = [scheduler.add(prompt, params)]
        tokens: dict[int, list[int]] = {}
        reused = {}
        while not scheduler.is_idle:
            for reply in scheduler.step():
                tokens.setdefault(reply.uid, []).append(reply.token)
                reused[reply.uid] = reply.reused_len
            if len(uids) < 3:
                uids.append(scheduler.add(longer, params))
            scheduler.pages.check_integrity()
    assert reused == {0: 0, 1: 12, 2: 12}
    for uid, text in zip(uids, (prompt, longer, longer), strict=True):
        expected = answer(text, 8)
        assert tokens[uid][: len(expected)] == expected


@pytest.mark.parametrize(
    ("page_size", "cached"), [(1, [0, 20, 20]), (4, [0, 20, 20]), (16, [0, 16, 16])]
)
def test_a_checkpoint_is_taken_where_two_prompts_part(
    model_dir: Path, answer: Any, page_size: int, cached: list[int]
):
    """The first prompt has no state there, and the second cannot know one is missing
    until it comes; from the third on they share."""
    opening = random_prompt(20, 1)
    prompts = [opening + [seed, *random_prompt(10, seed)] for seed in (2, 3, 4)]
    results = []
    with new_llm(model_dir, page_size) as llm:
        llm.generate(opening + [1, *random_prompt(30, 9)], greedy(1))
        for prompt in prompts:
            results += llm.generate(prompt, greedy(6))
            llm.scheduler.pages.check_integrity()
    assert [r["cached_tokens"] for r in results] == cached
    assert [r["token_ids"] for r in results] == [answer(p, 6) for p in prompts]


@pytest.mark.parametrize("page_size", [4, 16])
def test_a_prompt_that_ends_within_a_page_leaves_a_state_at_its_last_whole_page(
    model_dir: Path, answer: Any, page_size: int
):
    prompt = random_prompt(35, 1)
    with new_llm(model_dir, page_size) as llm:
        results = llm.generate(prompt, greedy(6)) + llm.generate(prompt, greedy(6))
    assert [r["cached_tokens"] for r in results] == [0, 32]
    assert [r["token_ids"] for r in results] == [answer(prompt, 6)] * 2


def test_a_prefix_whose_state_was_evicted_is_computed_again(
    model_dir: Path, answer: Any
):
    prompt, cached = random_prompt(20, 1), []
    with new_llm(model_dir) as llm:
        cache = llm.scheduler.pages.cache
        for _ in range(3):
            (result,) = llm.generate(prompt, greedy(6))
            assert result["token_ids"] == answer(prompt, 6)
            cached.append(result["cached_tokens"])
        assert cached == [0, 0, 19], "the second left a checkpoint at 19 for the third"
        held = cache.evictable_size()
        leaf = next(node for node in cache.nodes() if not node.children)
        lock = cache.inc_lock_ref(leaf)  # states may go, but no leaf with them
        cache.dec_lock_ref(leaf, lock.to_dec_params())
        cache.evict(EvictParams(mamba_num=num_cached_states(llm)))
        assert num_cached_states(llm) == 0 and cache.evictable_size() < held
        (result,) = llm.generate(prompt, greedy(6))
        assert result["cached_tokens"] == 0
        assert result["token_ids"] == answer(prompt, 6)


def test_an_aborted_request_leaves_the_state_it_has_reached(
    model_dir: Path, answer: Any
):
    prompt = random_prompt(20, 1)
    with new_llm(model_dir) as llm:
        stream = llm.stream(prompt, greedy(20, ignore_eos=True))
        answered = [next(stream).token_id for _ in range(5)]
        stream.close()
        (result,) = llm.generate([*prompt, *answered], greedy(3))
        assert result["cached_tokens"] == 24, "the fifth token was never computed"
        assert result["token_ids"] == answer([*prompt, *answered], 3)
        assert_all_is_accounted_for(llm)


# --- admission counts states ----------------------------------------------------------


def test_a_request_waits_for_a_state(model_dir: Path, answer: Any):
    prompts = [random_prompt(8, seed) for seed in range(4)]
    with new_llm(model_dir, page_size=4, num_states=2) as llm:
        forwards = record(llm)
        results = llm.generate(prompts, greedy(6, ignore_eos=True))
        assert_all_is_accounted_for(llm)
    prefills = [f.uids for f in forwards if f.phase == "prefill"]
    assert prefills == [[0, 1], [2, 3]]
    for prompt, result in zip(prompts, results, strict=True):
        expected = answer(prompt, 6)
        assert result["token_ids"][: len(expected)] == expected


def test_a_pool_of_one_state_is_refused(model_dir: Path):
    with pytest.raises(EngineConfigError, match="num_state_override is 1; to share"):
        new_llm(model_dir, num_states=1)


@pytest.mark.parametrize("cache_type", ["naive", "radix"])
def test_linear_layers_need_the_unified_cache(model_dir: Path, cache_type: str):
    with pytest.raises(EngineConfigError) as error:
        new_llm_of_any_cache(model_dir, cache_type=cache_type)
    assert str(error.value) == (
        f"cache_type is {cache_type!r}; a model with layers of the kind "
        "'linear_attention' needs 'unified'"
    )


def test_a_lost_state_is_noticed(model_dir: Path):
    with new_llm(model_dir) as llm:
        pages, states = llm.scheduler.pages, llm.engine.pools.states
        lost = states.allocate()
        with pytest.raises(IntegrityError, match=f"state {lost} has 0 owners"):
            pages.check_integrity()
        states.free(lost)
        pages.check_integrity()
