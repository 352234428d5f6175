"""Chapter 6: many requests at once, and the LLM around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from page_world import World
from serving import (
    EOS,
    build_eos_model,
    greedy,
    new_llm,
    random_traffic,
    record,
    replies_until_idle,
    serve,
)
from tiny_models import VOCAB_SIZE, hf_greedy, load_hf, random_prompt

from minisgl.core import SamplingParams
from minisgl.errors import (
    EngineConfigError,
    IntegrityError,
    MiniSGLError,
    PromptError,
    SamplingParamsError,
)
from minisgl.llm import LLM
from minisgl.llm.llm import IncrementalText
from minisgl.scheduler.table import TableManager


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose answers end early now and then."""
    return build_eos_model(tmp_path_factory.mktemp("eos"))


@pytest.fixture(scope="module")
def answer(model_dir: Path) -> Callable[[list[int], int], list[int]]:
    """How Hugging Face continues a prompt."""
    model = load_hf(model_dir)
    return lambda prompt, max_tokens: hf_greedy(model, prompt, max_tokens)


@pytest.fixture(scope="module")
def prompt_that_stops(answer: Any) -> tuple[list[int], list[int]]:
    """A prompt whose answer ends with EOS after at least three tokens, and that."""
    for seed in range(100, 200):
        prompt = random_prompt(6, seed)
        tokens = answer(prompt, 16)
        if 3 <= len(tokens) < 16:
            return prompt, tokens
    raise AssertionError("no answer of this model ends early")


@pytest.fixture
def llm(model_dir: Path):
    with new_llm(model_dir) as llm:
        yield llm


def run_all(llm: LLM) -> dict[int, list[int]]:
    """Step until nothing is left; the tokens by uid."""
    tokens: dict[int, list[int]] = {}
    for reply in replies_until_idle(llm):
        tokens.setdefault(reply.uid, []).append(reply.token)
    return tokens


# --- continuous batching --------------------------------------------------------------


def test_requests_join_when_they_come_and_leave_when_they_end(llm: LLM):
    forwards, scheduler = record(llm), llm.scheduler
    a = scheduler.add(random_prompt(3, 1), greedy(5, ignore_eos=True))
    scheduler.step()
    scheduler.step()
    b = scheduler.add(random_prompt(4, 2), greedy(2, ignore_eos=True))
    c = scheduler.add(random_prompt(2, 3), greedy(3, ignore_eos=True))
    run_all(llm)
    assert [str(forward) for forward in forwards] == [
        f"prefill [{a}]",
        f"decode [{a}]",
        f"prefill [{b}, {c}]",  # new prompts go before running answers
        f"decode [{a}, {b}, {c}]",  # the last step of b
        f"decode [{a}, {c}]",  # and of c
        f"decode [{a}]",
    ]
    assert [forward.lens for forward in forwards[:4]] == [[3], [1], [4, 2], [1, 1, 1]]


def test_what_shares_the_batch_does_not_change_an_answer(llm: LLM, answer: Any):
    prompts = [random_prompt(length, length) for length in (1, 7, 30, 2, 16, 17, 5, 64)]
    limits = [9, 1, 12, 4, 16, 7, 3, 10]
    results = llm.generate(prompts, [greedy(limit) for limit in limits])
    expected = [answer(p, n) for p, n in zip(prompts, limits, strict=True)]
    assert [result["token_ids"] for result in results] == expected


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_traffic_in_a_small_pool_is_answered_as_by_generate(
    model_dir: Path, page_size: int
):
    traffic = random_traffic(load_hf(model_dir), 20, seed=page_size)
    settings = dict(page_size=page_size, num_page_override=112 // page_size)
    with new_llm(model_dir, **settings, max_running_req=4) as llm:
        check = llm.scheduler.pages.check_integrity
        served = serve(llm, traffic, after_step=check)
        assert served.tokens == [arrival.answer for arrival in traffic]
        assert llm.scheduler.pages.num_available == 112 // page_size
        assert llm.scheduler.table.num_free == 4


# --- who comes in ---------------------------------------------------------------------


def test_each_request_needs_a_page_of_its_own():
    world = World(num_pages=1, page_size=4)
    assert world.admit([1], output_len=1) is not None
    assert world.admit([2], output_len=1) is None, "4 slots would do, 1 page not"
    for output_len in (1, 2):  # the same with prompts of two tokens
        world = World(num_pages=3, page_size=4)
        reqs = [world.admit([n, n], output_len) for n in range(4)]
        assert [req is not None for req in reqs] == [True, True, True, False]


def test_a_request_takes_a_page_only_when_its_last_one_is_full():
    world = World(num_pages=3, page_size=64)
    req = world.admit(range(63), output_len=8)
    taken = []
    for _ in range(4):  # up to 63, 64, 65 and 66 tokens
        world.forward(req)
        world.check()
        taken.append(3 - world.pages.allocator.num_free)
    assert taken == [1, 1, 2, 2]


def test_pages_that_a_running_request_may_still_need_are_not_promised_twice():
    world = World(num_pages=4, page_size=4)
    a = world.admit([1, 2, 3], output_len=8)  # 11 tokens: 3 pages in the end
    world.forward(a)
    assert len(world.free) == 3, "it has taken one so far"
    assert world.admit([4, 5, 6], output_len=5) is None  # 8 tokens: 2 pages
    b = world.admit([4, 5], output_len=2)
    assert b is not None
    world.forward(b)
    for _ in range(7):
        world.forward(a)  # it gets to its end
    world.release(a, b)
    world.check()
    assert world.free == [0, 1, 2, 3]


def test_a_request_fits_if_it_could_run_alone():
    pages = World(num_pages=3, page_size=4).pages
    assert pages.fits_pool(12)
    assert not pages.fits_pool(13)


def test_a_prompt_that_exceeds_the_token_limit_waits():
    world = World(num_pages=8)
    assert world.admit([1, 2, 3], max_tokens=2) is None
    assert world.admit([1, 2, 3], max_tokens=3) is not None


def test_the_first_in_the_queue_is_not_overtaken(model_dir: Path):
    with new_llm(model_dir, num_page_override=24) as llm:
        forwards, scheduler = record(llm), llm.scheduler
        params = greedy(4, ignore_eos=True)
        running = scheduler.add(random_prompt(8, 1), params)
        scheduler.step()
        large = scheduler.add(random_prompt(16, 2), params)
        small = [scheduler.add(random_prompt(2, seed), params) for seed in range(3, 9)]
        run_all(llm)
        prefills = [f.uids for f in forwards if f.phase == "prefill"]
        assert prefills[:2] == [[running], [large]], "no small one passed it"
        assert [uid for uids in prefills[2:] for uid in uids] == small


def test_a_large_request_is_served_while_small_ones_keep_coming(model_dir: Path):
    with new_llm(model_dir, num_page_override=24) as llm:
        scheduler, params = llm.scheduler, greedy(3, ignore_eos=True)
        scheduler.add(random_prompt(2, 0), params)
        large = scheduler.add(random_prompt(20, 1), params)
        for step in range(20):
            scheduler.add(random_prompt(2, step), params)
            if any(reply.uid == large for reply in scheduler.step()):
                break
        assert step < 10, "it waits for those before it, and for no other"


def test_no_more_requests_run_than_there_are_rows(model_dir: Path, answer: Any):
    with new_llm(model_dir, max_running_req=2) as llm:
        forwards = record(llm)
        prompts = [random_prompt(3, seed) for seed in range(5)]
        results = llm.generate(prompts, greedy(4))
        assert [r["token_ids"] for r in results] == [answer(p, 4) for p in prompts]
        assert max(len(forward.uids) for forward in forwards) == 2


def test_a_prefill_batch_stays_within_its_budget(model_dir: Path):
    with new_llm(model_dir, max_prefill_tokens=10) as llm:
        forwards = record(llm)
        prompts = [random_prompt(length, length) for length in (4, 6, 1, 9, 2)]
        llm.generate(prompts, greedy(1))
        assert [forward.lens for forward in forwards] == [[4, 6], [1, 9], [2]]


def test_a_prompt_longer_than_the_budget_is_computed_alone(
    model_dir: Path, answer: Any
):
    with new_llm(model_dir, max_prefill_tokens=10) as llm:
        forwards = record(llm)
        prompts = [random_prompt(length, length) for length in (4, 25, 3)]
        results = llm.generate(prompts, greedy(1))
        assert [forward.lens for forward in forwards] == [[4], [25], [3]]
        assert [r["token_ids"] for r in results] == [answer(p, 1) for p in prompts]


@pytest.mark.parametrize("budget", [0, -1, 2.5, "10", True])
def test_a_budget_that_is_no_positive_number_is_refused(model_dir: Path, budget: Any):
    with pytest.raises(EngineConfigError, match="max_prefill_tokens is .* 1 or more"):
        new_llm(model_dir, max_prefill_tokens=budget)


def test_rows_are_handed_out_one_by_one_and_taken_back_once():
    table = TableManager(3)
    assert [table.allocate() for _ in range(3)] == [0, 1, 2]
    assert table.num_free == 0
    table.free(1)
    assert (table.num_free, table.allocate()) == (1, 1)
    table.free(2)
    with pytest.raises(AssertionError, match="row 2 is free already"):
        table.free(2)


# --- pages ----------------------------------------------------------------------------


def test_a_request_reads_its_own_tokens_whatever_happens_around_it():
    world = World(num_pages=7, page_size=2)
    a, b = world.admit([1, 2, 3], 4), world.admit([1, 2, 3, 4], 2)
    world.forward(a, b)
    world.check()
    world.forward(a, b)
    world.release(b)
    c = world.admit([7], 2)
    world.forward(c)
    world.forward(a, c)
    world.check()
    assert world.row(a) == [0, 1, 2, 3, 6], "page 3 was the second one of b"
    world.release(a, c)
    world.check()
    assert world.free == list(range(7))


def test_a_slice_that_ends_inside_a_page_goes_on_in_that_page():
    world = World(num_pages=4, page_size=4)
    req = world.admit(range(10))
    for slice_len, pages_left in ((5, 2), (2, 2), (3, 1)):
        req.limit_chunk(slice_len)
        world.forward(req)
        world.check()
        assert len(world.free) == pages_left
    assert world.row(req) == list(range(10))


def test_the_integrity_check_names_a_lost_page():
    world = World(num_pages=4)
    req = world.admit([1, 2], 2)
    world.forward(req)
    world.check()
    world.pages.allocator.allocate(1)  # and nobody remembers it
    with pytest.raises(IntegrityError, match="page 2 is neither free nor in use"):
        world.pages.check_integrity()


def test_the_integrity_check_names_a_page_in_two_places():
    world = World(num_pages=6)
    a, b = world.admit([1, 2], 1), world.admit([3, 4], 1)
    world.forward(a, b)
    world.tables.write_slots(b.table_idx, 1, world.row(a)[1:])
    with pytest.raises(IntegrityError, match=f"page 1 .*request {b.uid}.*{a.uid}"):
        world.pages.check_integrity()


def test_the_integrity_check_names_a_page_that_is_free_and_in_use():
    world = World(num_pages=4)
    req = world.admit([1, 2], 1)
    world.forward(req)
    world.tables.write_slots(req.table_idx, 1, [3])
    with pytest.raises(IntegrityError, match="page 3 is held by request 1, but .*free"):
        world.pages.check_integrity()


def test_the_scheduler_checks_its_pages_when_nothing_is_left_to_do(llm: LLM):
    llm.generate([1, 2, 3], greedy(2))
    lost = llm.scheduler.pages.allocator.allocate(1)
    with pytest.raises(IntegrityError, match=f"page {lost[0]} is neither free nor"):
        llm.generate([1, 2, 3], greedy(2))
    llm.scheduler.pages.allocator.free(lost)


# --- aborts ---------------------------------------------------------------------------


def test_a_waiting_request_can_be_aborted(model_dir: Path, answer: Any):
    with new_llm(model_dir, max_running_req=1) as llm:
        scheduler, prompts = llm.scheduler, [random_prompt(5, s) for s in range(3)]
        first, second, third = [scheduler.add(p, greedy(4)) for p in prompts]
        scheduler.step()
        assert scheduler.abort(second) is True
        assert scheduler.abort(second) is False
        tokens = run_all(llm)
        assert tokens[first] == answer(prompts[0], 4)[1:]
        assert tokens[third] == answer(prompts[2], 4)
        assert second not in tokens


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_running_request_can_be_aborted(llm: LLM, answer: Any, steps: int):
    scheduler, prompts = llm.scheduler, [random_prompt(5, 1), random_prompt(9, 2)]
    stays, goes = [scheduler.add(p, greedy(6, ignore_eos=True)) for p in prompts]
    for _ in range(steps):
        scheduler.step()
    assert scheduler.abort(goes) is True
    scheduler.pages.check_integrity()
    assert scheduler.table.num_free == 7
    tokens = run_all(llm)
    assert list(tokens) == [stays] and len(tokens[stays]) == 6 - steps
    assert scheduler.pages.num_available == 256
    assert scheduler.table.num_free == 8


def test_aborting_what_ended_or_never_was_does_nothing(llm: LLM):
    scheduler = llm.scheduler
    uid = scheduler.add([1, 2, 3], greedy(1))
    run_all(llm)
    assert scheduler.abort(uid) is False
    assert scheduler.abort(12345) is False
    assert (scheduler.pages.num_available, scheduler.table.num_free) == (256, 8)


def test_the_pages_of_an_aborted_request_serve_the_next(model_dir: Path, answer: Any):
    with new_llm(model_dir, num_page_override=24) as llm:
        scheduler, prompt = llm.scheduler, random_prompt(12, 5)
        goes = scheduler.add(random_prompt(12, 4), greedy(10, ignore_eos=True))
        comes = scheduler.add(prompt, greedy(10))
        scheduler.step()
        scheduler.step()
        scheduler.abort(goes)
        assert run_all(llm)[comes] == answer(prompt, 10)


# --- generate -------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_prompts(llm: LLM, answer: Any):
    prompts = [random_prompt(length, 50 + length) for length in (20, 3, 11)]
    limits = [12, 1, 6]  # the second ends first, the first last
    results = llm.generate(prompts, [greedy(n, ignore_eos=True) for n in limits])
    assert [r["prompt_tokens"] for r in results] == [20, 3, 11]
    assert [len(r["token_ids"]) for r in results] == limits
    for prompt, result in zip(prompts, results, strict=True):
        expected = answer(prompt, 12)
        length = min(len(expected), len(result["token_ids"]))
        assert result["token_ids"][:length] == expected[:length]


def test_each_prompt_follows_its_own_sampling_parameters(llm: LLM, answer: Any):
    prompt = random_prompt(6, 7)
    params = [
        greedy(3, ignore_eos=True),
        SamplingParams(temperature=1.5, seed=1, max_tokens=7, ignore_eos=True),
        SamplingParams(temperature=1.5, seed=2, max_tokens=7, ignore_eos=True),
        SamplingParams(temperature=9.0, top_k=1, max_tokens=5, ignore_eos=True),
    ]
    together = [r["token_ids"] for r in llm.generate([prompt] * 4, params)]
    alone = [llm.generate(prompt, one)[0]["token_ids"] for one in params]
    assert together == alone
    assert [len(tokens) for tokens in together] == [3, 7, 7, 5]
    assert together[1] != together[2], "another seed, another answer"
    assert together[3][:3] == together[0], "top_k 1 is greedy"


def test_one_set_of_parameters_serves_all_and_the_default_is_greedy(llm: LLM):
    prompts = [random_prompt(4, 1), random_prompt(4, 2)]
    results = llm.generate(prompts, greedy(3, ignore_eos=True))
    assert [len(r["token_ids"]) for r in results] == [3, 3]
    (default,) = llm.generate(prompts[0])
    length = len(default["token_ids"])
    assert default["token_ids"][:3] == results[0]["token_ids"][:length]


def test_an_answer_ends_with_eos_unless_that_is_ignored(
    llm: LLM, prompt_that_stops: tuple[list[int], list[int]]
):
    prompt, tokens = prompt_that_stops
    params = [greedy(16), greedy(16, ignore_eos=True), greedy(len(tokens)), greedy(2)]
    stopped, ignored, both, short = llm.generate([prompt] * 4, params)
    assert stopped["token_ids"] == tokens and tokens[-1] in EOS
    assert stopped["finish_reason"] == "stop"
    assert ignored["token_ids"][: len(tokens)] == tokens
    assert (len(ignored["token_ids"]), ignored["finish_reason"]) == (16, "length")
    assert both["finish_reason"] == "stop", "EOS as the last token that was allowed"
    assert (short["token_ids"], short["finish_reason"]) == (tokens[:2], "length")


def test_one_token_is_an_answer(llm: LLM, answer: Any):
    forwards, prompt = record(llm), random_prompt(5, 3)
    (result,) = llm.generate(prompt, greedy(1, ignore_eos=True))
    assert result["token_ids"] == answer(prompt, 1)
    assert result["finish_reason"] == "length"
    assert [forward.phase for forward in forwards] == ["prefill"]


def test_an_answer_ends_where_the_engine_does(model_dir: Path, answer: Any):
    with new_llm(model_dir, max_seq_len_override=16) as llm:
        prompts = [random_prompt(12, 1), random_prompt(15, 2)]
        results = llm.generate(prompts, greedy(100, ignore_eos=True))
        assert [len(r["token_ids"]) for r in results] == [4, 1]
        assert [r["finish_reason"] for r in results] == ["length", "length"]
        assert results[1]["token_ids"] == answer(prompts[1], 1)


def test_results_count_what_was_found_and_what_was_computed(llm: LLM):
    results = llm.generate([[7, 8, 9], [10]], greedy(4, ignore_eos=True))
    counts = ("prompt_tokens", "cached_tokens", "computed_tokens")
    assert [tuple(r[key] for key in counts) for r in results] == [(3, 0, 3), (1, 0, 1)]


def test_no_prompts_give_no_results(llm: LLM):
    assert llm.generate([]) == []
    assert list(llm.stream([])) == []


def test_one_prompt_may_come_without_a_list_around_it(llm: LLM):
    one = llm.generate([7, 8, 9], greedy(3))
    assert len(one) == 1
    assert llm.generate([[7, 8, 9]], greedy(3)) == one
    assert llm.generate((7, 8, 9), greedy(3)) == one


def test_progress_is_shown_when_it_is_wanted(llm: LLM, capsys: Any):
    llm.generate([[1], [2]], greedy(2), progress=True)
    assert "2/2" in capsys.readouterr().err
    llm.generate([[1], [2]], greedy(2))
    assert capsys.readouterr() == ("", "")


# --- what cannot be served ------------------------------------------------------------

BAD_PROMPTS = {
    "empty": ([], "the prompt is empty"),
    "too long": ([1] * 48, "48 tokens; at most 47"),
    "larger than the pool": ([1] * 30, "30 tokens .* up to 8 of answer .* pool of 36"),
    "out of vocabulary": ([1, VOCAB_SIZE], f"{VOCAB_SIZE} is not a token id"),
    "negative": ([1, -1], "-1 is not a token id"),
    "no integer": ([1, 2.0], "2.0 is not a token id"),
    "a text in it": ([1, "a"], "'a' is not a token id"),
    "a list in it": ([1, [2]], r"\[2\] is not a token id"),
    "text for no tokenizer": ("hello", "no tokenizer; give a list of token ids"),
    "a number": (7, "a prompt is a int; it must be a text or a list of token ids"),
    "nothing": (None, "a prompt is a NoneType"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_prompt_that_cannot_be_served_fails_alone(
    model_dir: Path, answer: Any, name: str, place: int
):
    bad, message = BAD_PROMPTS[name]
    good = [random_prompt(5, 1), random_prompt(9, 2)]
    prompts = [*good[:place], bad, *good[place:]]
    settings = dict(max_seq_len_override=48, num_page_override=36)
    with new_llm(model_dir, **settings) as llm:
        results = llm.generate(prompts, greedy(8))
        failed = results.pop(place)
        assert [r["token_ids"] for r in results] == [answer(p, 8) for p in good]
        assert [r["error"] for r in results] == [None, None]
        assert failed["finish_reason"] == "error" and failed["token_ids"] == []
        with pytest.raises(PromptError, match=message):
            raise failed["error"]
        chunks = list(llm.stream(prompts, greedy(8)))
        (chunk,) = [chunk for chunk in chunks if chunk.error]
        assert (chunk.index, chunk.finish_reason) == (place, "error")
        assert {chunk.index for chunk in chunks} == {0, 1, 2}


def test_a_refused_prompt_changes_nothing(llm: LLM):
    scheduler = llm.scheduler
    with pytest.raises(PromptError):
        scheduler.add([], greedy(1))
    assert scheduler.is_idle and scheduler.step() == []
    assert (scheduler.pages.num_available, scheduler.table.num_free) == (256, 8)


@pytest.mark.parametrize(
    "prompts", [5, None, {1: 2}, b"ab", torch.tensor([1, 2]), iter([[1]])], ids=type
)
def test_what_is_no_list_of_prompts_is_refused_by_name(llm: LLM, prompts: Any):
    with pytest.raises(PromptError, match="prompts is a .*; give a text, a list of"):
        llm.generate(prompts, greedy(1))
    assert llm.scheduler.is_idle


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([greedy(1)], "1 sampling parameters for 2 prompts"),
        ([greedy(1)] * 3, "3 sampling parameters for 2 prompts"),
        ({"max_tokens": 3}, "sampling_params is {'max_tokens': 3}"),
        ([greedy(1), 5], "give a SamplingParams, or a list"),
        (5, "sampling_params is 5"),
    ],
)
def test_sampling_parameters_that_do_not_fit_are_refused(
    llm: LLM, params: Any, message: str
):
    with pytest.raises(SamplingParamsError, match=message):
        llm.generate([[1], [2]], params)
    assert llm.scheduler.is_idle


# --- streams --------------------------------------------------------------------------


def test_chunks_come_as_soon_as_their_tokens_are_there(llm: LLM):
    forwards, prompts = record(llm), [random_prompt(4, 1), random_prompt(7, 2)]
    results = llm.generate(prompts, [greedy(3), greedy(5)])
    forwards.clear()
    seen = [
        (len(forwards), chunk.index, chunk.token_id)
        for chunk in llm.stream(prompts, [greedy(3), greedy(5)])
    ]
    expected = [
        (number + 1, index, result["token_ids"][number])
        for number in range(5)
        for index, result in enumerate(results)
        if number < len(result["token_ids"])
    ]
    assert seen == expected


def test_the_last_chunk_of_each_prompt_says_why_it_ended(
    llm: LLM, prompt_that_stops: tuple[list[int], list[int]]
):
    prompt, tokens = prompt_that_stops
    chunks = list(llm.stream([prompt, prompt], [greedy(16), greedy(2)]))
    reasons = [[c.finish_reason for c in chunks if c.index == i] for i in (0, 1)]
    assert reasons[0] == [None] * (len(tokens) - 1) + ["stop"]
    assert reasons[1] == [None, "length"]


def test_leaving_a_stream_early_aborts_what_still_runs(llm: LLM):
    prompts = [random_prompt(5, seed) for seed in range(3)]
    for chunk in llm.stream(prompts, greedy(30, ignore_eos=True)):
        if chunk.index == 1:
            break
    assert llm.scheduler.is_idle
    llm.scheduler.pages.check_integrity()
    assert llm.scheduler.pages.num_available == 256
    assert llm.scheduler.table.num_free == 8


def test_two_streams_and_a_generate_run_side_by_side(llm: LLM, answer: Any):
    prompts = [random_prompt(5, seed) for seed in range(3)]
    first = llm.stream(prompts[0], greedy(9, ignore_eos=True))
    second = llm.stream(prompts[1], greedy(4))
    tokens = [next(first).token_id], [next(second).token_id]
    tokens[0].append(next(first).token_id)
    (result,) = llm.generate(prompts[2], greedy(12))
    tokens[1].extend(chunk.token_id for chunk in second)
    tokens[0].extend(chunk.token_id for chunk in first)
    assert result["token_ids"] == answer(prompts[2], 12)
    assert tokens[1] == answer(prompts[1], 4)
    expected = answer(prompts[0], 9)
    assert len(tokens[0]) == 9 and tokens[0][: len(expected)] == expected
    assert llm.scheduler.is_idle


def test_closing_one_stream_leaves_the_other_alone(llm: LLM, answer: Any):
    prompts = [random_prompt(5, seed) for seed in range(2)]
    goes, stays = [llm.stream(p, greedy(9)) for p in prompts]
    next(goes)
    tokens = [next(stays).token_id]
    goes.close()
    tokens += [chunk.token_id for chunk in stays]
    assert tokens == answer(prompts[1], 9)


# --- the end --------------------------------------------------------------------------


def test_after_shutdown_every_use_says_so(model_dir: Path):
    with new_llm(model_dir) as llm:
        stream = llm.stream([1, 2, 3], greedy(5, ignore_eos=True))
        next(stream)
    for use in (
        lambda: llm.generate([1, 2], greedy(1)),
        lambda: next(llm.stream([1, 2], greedy(1))),
        lambda: next(stream),
    ):
        with pytest.raises(MiniSGLError, match="shut down; make a new one"):
            use()
    llm.shutdown()  # once more does no harm


def test_a_stream_that_is_dropped_after_shutdown_says_nothing(
    model_dir: Path, recwarn: pytest.WarningsRecorder
):
    llm = new_llm(model_dir)
    stream = llm.stream([1, 2, 3], greedy(5, ignore_eos=True))
    next(stream)
    llm.shutdown()
    stream.close()
    del stream
    assert not recwarn.list


def test_shutdown_returns_the_pages_of_what_still_runs(model_dir: Path):
    llm = new_llm(model_dir)
    stream = llm.stream([[1, 2, 3], [4]], greedy(5, ignore_eos=True))
    next(stream)
    scheduler = llm.scheduler
    llm.shutdown()
    assert scheduler.is_idle
    assert (scheduler.pages.num_available, scheduler.table.num_free) == (256, 8)


# --- text -----------------------------------------------------------------------------

TEXTS = [
    "Hello, world. ",
    "naïve café: 中文, ñandú",
    "🙂",
    "a 👩‍👩‍👧 family, 👍🏽, and a flag 🇫🇷",
    "one\n\n  two\ttabs   and spaces ",
    "half a character at the end \ufffd",
]


@pytest.fixture(scope="module")
def real_llm(smollm2: Path):
    with new_llm(smollm2, page_size=16, num_page_override=16) as llm:
        yield llm


def pieces_of(tokenizer: Any, token_ids: list[int]) -> list[str]:
    stream = IncrementalText(tokenizer)
    last = len(token_ids) - 1
    return [stream.push(token, is_last=i == last) for i, token in enumerate(token_ids)]


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_text_never_break_a_character(real_llm: LLM, text: str):
    token_ids = real_llm.tokenizer(text).input_ids
    pieces = pieces_of(real_llm.tokenizer, token_ids)
    assert all("\ufffd" not in piece for piece in pieces[:-1])
    assert "".join(pieces) == text == real_llm.tokenizer.decode(token_ids)


@pytest.mark.model
def test_an_emoji_takes_several_tokens_and_comes_as_one_piece(real_llm: LLM):
    token_ids = real_llm.tokenizer("🦜!").input_ids
    assert len(token_ids) >= 4
    pieces = pieces_of(real_llm.tokenizer, token_ids)
    assert pieces == [*[""] * (len(token_ids) - 2), "🦜", "!"]


@pytest.mark.model
def test_what_is_left_of_a_broken_character_comes_with_the_last_token(real_llm: LLM):
    token_ids = real_llm.tokenizer("ok 🦜").input_ids[:-1]
    pieces = pieces_of(real_llm.tokenizer, token_ids)
    assert "".join(pieces) == real_llm.tokenizer.decode(token_ids)
    assert pieces[0] == "ok" and pieces[-1].endswith("\ufffd")


@pytest.mark.model
def test_streamed_text_equals_that_of_generate_on_a_real_model(real_llm: LLM):
    prompts = ["The capital of France is", "🙂🎉🙂🎉🙂🎉🙂🎉🙂"]
    results = real_llm.generate(prompts, greedy(6))
    texts, tokens = [[], []], [[], []]
    for chunk in real_llm.stream(prompts, greedy(6)):
        texts[chunk.index].append(chunk.text)
        tokens[chunk.index].append(chunk.token_id)
    assert ["".join(parts) for parts in texts] == [r["text"] for r in results]
    assert tokens == [r["token_ids"] for r in results]
    assert results[0]["text"].startswith(" Paris")
    assert "🎉" in results[1]["text"] and "" in texts[1], "no character was split"


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "message"), [("a\ud800b", "not valid text"), ("", "prompt is empty")]
)
def test_text_that_gives_no_tokens_is_refused_by_name(
    real_llm: LLM, text: str, message: str
):
    bad, good = real_llm.generate([text, "Hello"], greedy(1))
    assert good["error"] is None and len(good["token_ids"]) == 1
    with pytest.raises(PromptError, match=message):
        raise bad["error"]
