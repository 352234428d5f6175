"""Chapter 8: a whole engine on the radix cache, under memory pressure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from page_world import watch
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
from tiny_models import hf_greedy, load_hf, random_prompt

from minisgl.core import SamplingParams
from minisgl.kvcache.page_allocator import pages_of_slots
from minisgl.llm import LLM

POOL = 128  # tokens: room for about three of the requests


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


def radix_llm(model_dir: Path, page_size: int = 1, pool: int = POOL, **more: Any):
    settings = dict(page_size=page_size, num_page_override=pool // page_size)
    return new_llm(model_dir, cache_type="radix", **settings, **more)


def assert_all_is_accounted_for(llm: LLM) -> None:
    """Nothing runs: no lock is out, each page is free or evictable, each row free."""
    pages, page_size = llm.scheduler.pages, llm.engine.config.page_size
    evictable, protected = pages.prefix_cache.size_info
    assert protected == 0
    assert pages.allocator.num_free * page_size + evictable == POOL
    assert llm.scheduler.table.num_free == llm.engine.config.max_running_req
    slots = pages.prefix_cache.evict(evictable).tolist()
    pages.allocator.free(pages_of_slots(slots, page_size))
    assert pages.allocator.num_free * page_size == POOL
    pages.prefix_cache.reset()  # refuses as long as a receipt is out


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_sixty_requests_that_share_prefixes_are_answered_as_by_generate(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int
):
    with radix_llm(model_dir, page_size) as llm:
        forwards, pages = record(llm), llm.scheduler.pages
        cache = watch(pages)
        served = serve(llm, traffic, after_step=pages.check_integrity)
        assert served.tokens == [arrival.answer for arrival in traffic]
        assert_all_is_accounted_for(llm)
    # it was a hard test: prefixes were found, pages evicted and used again
    computed = sum(sum(f.lens) for f in forwards if f.phase == "prefill")
    assert computed + sum(served.reused) == sum(len(a.prompt) for a in traffic)
    assert sum(n > 0 for n in served.reused) >= (30 if page_size < 16 else 8)
    assert len(cache.evicted) > 2 * POOL
    used = [slot for f in forwards for slots in f.slots for slot in slots]
    assert len(used) > 5 * POOL
    assert max(len(f.uids) for f in forwards if f.phase == "decode") >= 3


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_aborts_at_any_step_disturb_nobody(
    model_dir: Path, traffic: tuple[Arrival, ...], page_size: int, start: int
):
    abort_at = {i: traffic[i].step + i % 7 for i in range(start, 60, 3)}
    with radix_llm(model_dir, page_size) as llm:
        pages = llm.scheduler.pages
        served = serve(llm, traffic, abort_at, after_step=pages.check_integrity)
        assert_all_is_accounted_for(llm)
    aborted = [i for i, why in enumerate(served.reasons) if why == "abort"]
    assert len(aborted) >= 10
    for index, arrival in enumerate(traffic):
        tokens = served.tokens[index]
        expected = arrival.answer[: len(tokens)] if index in aborted else arrival.answer
        assert tokens == expected


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_freed_copies_of_a_prefix_are_overwritten_and_nobody_notices(
    model_dir: Path, answer: Any, page_size: int
):
    """Two prompts with one beginning in one batch; the copies that the second one
    frees are all that a third can get, and it gets them at once."""
    common = random_prompt(20, 1)
    first, second = common + random_prompt(4, 2), common + random_prompt(4, 3)
    third = random_prompt(12, 4)
    with radix_llm(model_dir, page_size, pool=64) as llm:
        forwards, scheduler = record(llm), llm.scheduler
        params = greedy(8, ignore_eos=True)
        uids = [scheduler.add(p, params) for p in (first, second, third)]
        tokens: dict[int, list[int]] = {uid: [] for uid in uids}
        for reply in replies_until_idle(llm):
            tokens[reply.uid].append(reply.token)
    both, alone = forwards[:2]
    assert (both.uids, alone.uids) == (uids[:2], uids[2:])
    copies = set(both.slots[1][: len(common)])
    assert set(alone.slots[0]) < copies
    for uid, prompt in zip(uids, (first, second, third), strict=True):
        expected = answer(prompt, 8)
        assert tokens[uid][: len(expected)] == expected


def test_the_waiting_first_request_does_not_hold_on_to_its_prefix(
    model_dir: Path, answer: Any
):
    """It is refused at every step until there is room, and keeps no lock meanwhile."""
    opening = random_prompt(20, 1)
    prompts = [opening + [1], random_prompt(40, 2), opening + random_prompt(30, 3)]
    with radix_llm(model_dir, pool=80) as llm:
        cache = llm.scheduler.pages.prefix_cache
        llm.generate(prompts[0], greedy(1))
        llm.scheduler.add(prompts[1], greedy(20, ignore_eos=True))
        llm.scheduler.step()
        waiting = llm.scheduler.add(prompts[2], greedy(10))
        for _ in range(5):
            llm.scheduler.step()
            assert cache.size_info.protected_size == 40, "the running request's alone"
        tokens, reused = [], set()
        for reply in replies_until_idle(llm):
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
    with radix_llm(model_dir, page_size) as llm:
        first, second = [llm.generate(prompt, greedy(6))[0] for _ in range(2)]
    assert first["token_ids"] == second["token_ids"] == answer(prompt, 6)
    counts = ("prompt_tokens", "cached_tokens", "computed_tokens")
    assert [first[key] for key in counts] == [20, 0, 20]
    assert [second[key] for key in counts] == [20, 20 - computed, computed]


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(
    model_dir: Path, answer: Any
):
    history, computed = random_prompt(12, 1), []
    with radix_llm(model_dir) as llm:
        for turn in range(4):
            (result,) = llm.generate(history, greedy(5, ignore_eos=True))
            expected = answer(history, 5)
            assert result["token_ids"][: len(expected)] == expected
            computed.append(result["computed_tokens"])
            history = history + result["token_ids"] + random_prompt(3, turn)
    assert computed == [12, 4, 4, 4]  # the last sampled token and the three new ones


def test_a_shared_opening_is_computed_once(model_dir: Path, answer: Any):
    opening = random_prompt(30, 1)
    prompts = [opening + random_prompt(4, seed) for seed in range(2, 6)]
    computed = {}
    for cache_type in ("naive", "radix"):
        with new_llm(model_dir, cache_type=cache_type) as llm:
            results = llm.generate(prompts[:1], greedy(4))
            results += llm.generate(prompts[1:], greedy(4))
        computed[cache_type] = sum(r["computed_tokens"] for r in results)
        assert [r["token_ids"] for r in results] == [answer(p, 4) for p in prompts]
    assert computed == {"naive": 4 * 34, "radix": 34 + 3 * 4}


def test_what_is_reused_does_not_use_up_the_prefill_budget(model_dir: Path):
    opening = random_prompt(30, 1)
    prompts = [opening + random_prompt(2, seed) for seed in range(2, 7)]
    with new_llm(model_dir, cache_type="radix", max_prefill_tokens=10) as llm:
        llm.generate(prompts[0], greedy(1))
        forwards = record(llm)
        llm.generate(prompts[1:], greedy(1))
    assert [f.lens for f in forwards] == [[2, 2, 2, 2]]


def test_an_aborted_request_leaves_what_it_computed(model_dir: Path, answer: Any):
    prompt = random_prompt(20, 1)
    with radix_llm(model_dir) as llm:
        stream = llm.stream(prompt, greedy(20, ignore_eos=True))
        answered = [next(stream).token_id for _ in range(5)]
        stream.close()
        (result,) = llm.generate([*prompt, *answered], greedy(3))
        assert result["cached_tokens"] == 24, "the fifth token was never computed"
        assert result["token_ids"] == answer([*prompt, *answered], 3)
        assert_all_is_accounted_for(llm)


# --- sampling -------------------------------------------------------------------------


def test_a_seed_gives_the_same_tokens_in_any_company_and_on_any_cache(model_dir: Path):
    common = random_prompt(10, 1)
    prompts = [common + random_prompt(1 + seed % 4, seed) for seed in range(10)]
    params = [
        SamplingParams(temperature=1.2, top_k=40, seed=seed, max_tokens=8)
        for seed in range(10)
    ]
    answers = []
    for cache_type in ("naive", "radix"):
        for rows in (1, 8):
            settings = dict(cache_type=cache_type, max_running_req=rows)
            with new_llm(model_dir, **settings) as llm:
                forwards = record(llm)
                results = llm.generate(prompts, params)
                assert max(len(f.uids) for f in forwards) == rows
            answers.append([r["token_ids"] for r in results])
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert len({tuple(tokens) for tokens in answers[0]}) == 10


# --- a real model ---------------------------------------------------------------------


@pytest.mark.model
def test_a_real_model_says_the_same_with_and_without_a_shared_prefix(smollm2: Path):
    system = "You are a helpful assistant. Answer concisely and accurately. "
    questions = ["What is 2 + 2?", "Name a primary color.", "Spell cat."]
    texts, computed = {}, {}
    for cache_type in ("naive", "radix"):
        settings = dict(cache_type=cache_type, page_size=4, num_page_override=48)
        with new_llm(smollm2, **settings) as llm:
            results = llm.generate(system + questions[0], greedy(4))
            prompts = [system + question for question in questions[1:]]
            results += llm.generate(prompts, greedy(4))
        texts[cache_type] = [result["text"] for result in results]
        computed[cache_type] = [result["computed_tokens"] for result in results]
    assert texts["naive"] == texts["radix"]
    assert computed["radix"][0] == computed["naive"][0]
    for now, before in zip(computed["radix"][1:], computed["naive"][1:], strict=True):
        assert now < before / 2
