"""Chapter 11: a whole engine on the unified cache, with nothing but full attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import (
    Arrival,
    build_eos_model,
    greedy,
    new_llm,
    record,
    reference_traffic,
    serve,
)
from tiny_models import hf_greedy, load_hf, random_prompt
from unified_serving import (
    POOL,
    assert_all_is_accounted_for,
    assert_answers,
    random_aborts,
    unified_llm,
    watch_evictions,
)

from minisgl.core import SamplingParams
from minisgl.errors import EngineConfigError, IntegrityError, PromptError
from minisgl.kvcache.unified import ComponentType


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_eos_model(tmp_path_factory.mktemp("eos"))


@pytest.fixture(scope="module")
def answer(model_dir: Path) -> Callable[[list[int], int], list[int]]:
    """How Hugging Face continues a prompt."""
    model = load_hf(model_dir)
    return lambda prompt, max_tokens: hf_greedy(model, prompt, max_tokens)


@pytest.fixture(scope="module")
def traffic() -> tuple[Arrival, ...]:
    return reference_traffic()


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_sixty_requests_that_share_prefixes_are_answered_as_by_generate(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    with unified_llm(model_dir, page_size) as llm:
        forwards, evicted = record(llm), watch_evictions(llm)
        served = serve(llm, traffic, after_step=llm.scheduler.pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        num_evicted = evicted[ComponentType.FULL]
        assert_all_is_accounted_for(llm)
    computed = sum(sum(f.lens) for f in forwards if f.phase == "prefill")
    assert computed + sum(served.reused) == sum(len(a.prompt) for a in traffic)
    assert sum(n > 0 for n in served.reused) >= 30
    assert num_evicted > 2 * POOL
    assert max(len(f.uids) for f in forwards if f.phase == "decode") >= 3


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("pool", [POOL, 2048])
def test_every_forward_is_the_one_that_the_radix_cache_makes(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int, pool: int
):
    """The same requests in the same batches, with as many tokens to compute, whether
    or not prefixes are evicted in between."""
    seen = {}
    for cache_type in ("radix", "unified"):
        settings = dict(page_size=page_size, num_page_override=pool // page_size)
        with new_llm(model_dir, cache_type=cache_type, **settings) as llm:
            forwards = record(llm)
            served = serve(llm, traffic)
        work = [(f.phase, f.uids, f.lens) for f in forwards]
        seen[cache_type] = (served.tokens, served.reasons, served.reused, work)
    assert seen["unified"] == seen["radix"]


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_aborts_at_any_step_disturb_nobody(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int, start: int
):
    with unified_llm(model_dir, page_size) as llm:
        check, abort_at = (
            llm.scheduler.pages.check_integrity,
            random_aborts(traffic, start),
        )
        served = serve(llm, traffic, abort_at, after_step=check)
        assert_all_is_accounted_for(llm)
    assert served.reasons.count("abort") >= 10
    assert_answers(served, traffic)


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_freed_copies_of_a_prefix_are_overwritten_and_nobody_notices(
    model_dir: Path, answer: Any, page_size: int
):
    """Two prompts with one beginning in one batch; the copies that the second one
    frees are all that a third can get, and it gets them at once."""
    common = random_prompt(20, 1)
    prompts = [common + random_prompt(4, 2), common + random_prompt(4, 3)]
    prompts.append(random_prompt(12, 4))
    with unified_llm(model_dir, page_size, pool=64) as llm:
        forwards, scheduler = record(llm), llm.scheduler
        params = greedy(8, ignore_eos=True)
        uids = [scheduler.add(prompt, params) for prompt in prompts]
        tokens: dict[int, list[int]] = {uid: [] for uid in uids}
        while not scheduler.is_idle:
            for reply in scheduler.step():
                tokens[reply.uid].append(reply.token)
            scheduler.pages.check_integrity()
    both, alone = forwards[:2]
    assert (both.uids, alone.uids) == (uids[:2], uids[2:])
    assert set(alone.slots[0]) < set(both.slots[1][: len(common)])
    for uid, prompt in zip(uids, prompts, strict=True):
        expected = answer(prompt, 8)
        assert tokens[uid][: len(expected)] == expected


def test_a_request_that_waits_changes_nothing_and_keeps_no_lock(
    model_dir: Path, answer: Any
):
    opening = random_prompt(20, 1)
    prompts = [opening + [1], random_prompt(40, 2), opening + random_prompt(30, 3)]
    with unified_llm(model_dir, pool=80) as llm:
        cache = llm.scheduler.pages.cache
        llm.generate(prompts[0], greedy(1))
        llm.scheduler.add(prompts[1], greedy(20, ignore_eos=True))
        llm.scheduler.step()
        waiting = llm.scheduler.add(prompts[2], greedy(10))
        for _ in range(5):
            llm.scheduler.step()
            assert cache.protected_size() == 40, "the running request's alone"
            assert len(cache.receipts) == 1
        tokens, reused = [], set()
        while not llm.scheduler.is_idle:
            for reply in llm.scheduler.step():
                if reply.uid == waiting:
                    tokens.append(reply.token)
                    reused.add(reply.reused_len)
        assert tokens == answer(prompts[2], 10)
        assert reused == {20}


# --- what is reused -------------------------------------------------------------------


@pytest.mark.parametrize(("page_size", "computed"), [(1, 1), (4, 4), (16, 4)])
def test_the_same_prompt_again_computes_its_last_page_only(
    model_dir: Path, answer: Any, page_size: int, computed: int
):
    prompt = random_prompt(20, 1)
    with unified_llm(model_dir, page_size) as llm:
        first, second = [llm.generate(prompt, greedy(6))[0] for _ in range(2)]
    assert first["token_ids"] == second["token_ids"] == answer(prompt, 6)
    counts = ("prompt_tokens", "cached_tokens", "computed_tokens")
    assert [first[key] for key in counts] == [20, 0, 20]
    assert [second[key] for key in counts] == [20, 20 - computed, computed]


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(
    model_dir: Path, answer: Any
):
    history, computed = random_prompt(12, 1), []
    with unified_llm(model_dir) as llm:
        for turn in range(4):
            (result,) = llm.generate(history, greedy(5, ignore_eos=True))
            expected = answer(history, 5)
            assert result["token_ids"][: len(expected)] == expected
            computed.append(result["computed_tokens"])
            history = history + result["token_ids"] + random_prompt(3, turn)
    assert computed == [12, 4, 4, 4]  # the last sampled token and the three new ones


def test_an_aborted_request_leaves_what_it_computed(model_dir: Path, answer: Any):
    prompt = random_prompt(20, 1)
    with unified_llm(model_dir) as llm:
        stream = llm.stream(prompt, greedy(20, ignore_eos=True))
        answered = [next(stream).token_id for _ in range(5)]
        stream.close()
        (result,) = llm.generate([*prompt, *answered], greedy(3))
        assert result["cached_tokens"] == 24, "the fifth token was never computed"
        assert result["token_ids"] == answer([*prompt, *answered], 3)
        assert_all_is_accounted_for(llm)


# --- what is refused, and what is noticed ---------------------------------------------


def test_an_unknown_cache_type_is_refused_with_the_known_ones(model_dir: Path):
    with pytest.raises(EngineConfigError) as error:
        new_llm(model_dir, cache_type="fast")
    assert str(error.value) == (
        "cache_type is 'fast'; it must be 'naive', 'radix', 'unified'"
    )


def test_a_request_that_the_pool_can_never_hold_is_refused(model_dir: Path):
    with unified_llm(model_dir, pool=32) as llm:
        with pytest.raises(PromptError, match="not fit in a pool of 32 tokens"):
            llm.scheduler.add(random_prompt(20, 1), greedy(13))
        assert llm.generate(random_prompt(20, 1), greedy(12))[0]["token_ids"]


def running(llm: Any, prompt: list[int]) -> Any:
    """A request whose prompt was computed just now."""
    uid = llm.scheduler.add(prompt, greedy(8, ignore_eos=True))
    llm.scheduler.step()
    return llm.scheduler.pages.live[uid]


def test_a_row_that_points_elsewhere_is_noticed(model_dir: Path):
    with unified_llm(model_dir) as llm:
        req, pages = running(llm, [3, 1, 4, 1, 5]), llm.scheduler.pages
        pages.check_integrity()
        right = pages.tables.read_slots(req.table_idx, 1, 2)
        pages.tables.write_slots(req.table_idx, 1, [100])
        with pytest.raises(IntegrityError, match=f"row of request {req.uid} does not"):
            pages.check_integrity()
        pages.tables.write_slots(req.table_idx, 1, right)
        pages.check_integrity()


def test_a_lost_page_is_noticed(model_dir: Path):
    with unified_llm(model_dir) as llm:
        pages = llm.scheduler.pages
        (lost,) = pages.allocator.allocate(1)
        with pytest.raises(IntegrityError, match=f"page {lost} is neither free"):
            pages.check_integrity()
        pages.allocator.free([lost])


# --- a real model ---------------------------------------------------------------------


@pytest.mark.model
def test_a_real_model_says_the_same_on_the_radix_and_on_the_unified_cache(
    smollm2: Path,
):
    system = "You are a helpful assistant. Answer concisely and accurately. "
    questions = ["What is 2 + 2?", "Name a primary color.", "Spell cat."]
    seen = {}
    for cache_type in ("radix", "unified"):
        settings = dict(cache_type=cache_type, page_size=4, num_page_override=48)
        with new_llm(smollm2, **settings) as llm:
            results = llm.generate(system + questions[0], SamplingParams(max_tokens=4))
            prompts = [system + question for question in questions[1:]]
            results += llm.generate(prompts, SamplingParams(max_tokens=4))
        seen[cache_type] = [(r["text"], r["cached_tokens"]) for r in results]
    assert seen["unified"] == seen["radix"]
    assert all(cached for _, cached in seen["unified"][1:])
