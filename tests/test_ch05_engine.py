"""Chapter 5: the engine; one request, token for token as Hugging Face has it."""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import VOCAB_SIZE, hf_greedy, load_hf, random_prompt
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minisgl.core import Batch, Context, Req, SamplingParams, set_global_ctx
from minisgl.device import free_memory, pick_device, synchronize
from minisgl.engine.config import EngineConfig, load_eos_token_ids
from minisgl.engine.engine import Engine
from minisgl.engine.generate import generate_one
from minisgl.engine.sample import Sampler, sample_rows
from minisgl.errors import (
    DeviceError,
    EngineConfigError,
    ModelError,
    PoolError,
    PromptError,
)
from minisgl.kvcache.page_allocator import num_pages_for, slots_of_pages

Tiny = Callable[[str], Path]
PROMPT_LENS = [1, 3, 4, 5, 16, 17, 33, 64]
NEW_TOKENS = 20


def new_engine(model_dir: Path, **settings: Any) -> Engine:
    small = dict(
        device="cpu",
        dtype=torch.float32,
        max_running_req=4,
        max_seq_len_override=128,
    )
    return Engine(EngineConfig(model_dir, **{**small, **settings}))


def greedy(max_tokens: int = NEW_TOKENS, **given: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **given)


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> Callable[[str, int, str], list[int]]:
    """expected("qwen3", 17, "cpu"): how `generate` continues random_prompt(17, 17)."""
    known: dict[tuple[str, int, str], list[int]] = {}
    models: dict[tuple[str, str], Any] = {}

    def lookup(name: str, length: int, device: str) -> list[int]:
        if (name, device) not in models:
            models[name, device] = load_hf(tiny(name), device)
        if (name, length, device) not in known:
            prompt = random_prompt(length, seed=length)
            tokens = hf_greedy(models[name, device], prompt, NEW_TOKENS)
            known[name, length, device] = tokens
        return known[name, length, device]

    return lookup


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_greedy_tokens_equal_those_of_generate(
    name: str, page_size: int, device: str, tiny: Tiny, expected: Any
):
    """The lengths end before, at and behind page boundaries, and answers cross them."""
    engine = new_engine(tiny(name), page_size=page_size, device=device)
    for length in PROMPT_LENS:
        ours = generate_one(engine, random_prompt(length, seed=length), greedy())
        assert ours == expected(name, length, device), f"prompt of {length} tokens"


@pytest.mark.parametrize("name", ["llama3-rope", "llama-bias"])
def test_greedy_tokens_of_other_llamas_equal_those_of_generate(
    name: str, tiny: Tiny, expected: Any
):
    ours = generate_one(new_engine(tiny(name)), random_prompt(64, seed=64), greedy())
    assert ours == expected(name, 64, "cpu")


TEXT = """\
A cache remembers what was computed, so that nobody has to compute it again. A language
model that reads a long text makes a key and a value for every word, and each new word
looks at all of them. If the keys and the values were thrown away after every word, the
model would have to read the whole text once more for the next one, and an answer of a
hundred words would cost a hundred times as much. So they are kept, page by page, in a
pool that all requests share. When a request ends, its pages go back to the pool, and
the next request writes over them. Some requests begin alike: the same instructions, the
same document, the same conversation up to the last question. Then the pages of the
first can serve the second, as long as nobody writes to them. A tree whose branches are
runs of words finds the longest beginning that two requests have in common. Once the
pool is full, the leaf that nobody has asked for the longest makes room. In this way a
small machine can serve many people at once, and the hundredth question about the same
book costs little more than the question itself. It is an old idea. Operating systems
have kept pages of memory in this manner for more than fifty years, and what was learned
there holds here as well: count every page, know who owns it, never free one twice, and
do not trust a clock. Here is a list of ten animals that live near water, with a word
about each of them. The first one is the beaver, which builds dams. The second one is
"""


@pytest.mark.model
def test_greedy_tokens_of_smollm2_equal_those_of_generate(
    smollm2: Path, smollm2_hf: Any
):
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    tokens = tokenizer(TEXT).input_ids
    prompts = [tokens[-length - 1 : -1] for length in (1, 7, 32, 100, 300)]
    assert [len(prompt) for prompt in prompts] == [1, 7, 32, 100, 300]
    engine = new_engine(
        smollm2, page_size=16, num_page_override=21, max_seq_len_override=336
    )
    for prompt in prompts:
        ours = generate_one(engine, prompt, greedy(max_tokens=32))
        assert ours == hf_greedy(smollm2_hf, prompt, 32), f"{len(prompt)} tokens"


def test_the_same_request_again_gives_the_same_answer(tiny: Tiny, expected: Any):
    """Pages and rows still hold the last request, and what they hold must not show."""
    engine = new_engine(tiny("qwen3"), page_size=4)
    for length in (33, 5, 33, 64, 5):
        prompt = random_prompt(length, seed=length)
        answer = generate_one(engine, prompt, greedy())
        assert answer == expected("qwen3", length, "cpu")


def test_an_answer_has_as_many_tokens_as_were_asked_for(tiny: Tiny):
    engine, prompt = new_engine(tiny("llama")), random_prompt(5, seed=5)
    for max_tokens in (1, 2, 7):
        assert len(generate_one(engine, prompt, greedy(max_tokens))) == max_tokens


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_an_answer_ends_where_the_longest_request_ends(page_size: int, tiny: Tiny):
    engine = new_engine(tiny("llama"), max_seq_len_override=21, page_size=page_size)
    prompt = random_prompt(16, seed=16)
    longest = generate_one(engine, prompt, greedy(max_tokens=1000))
    assert len(longest) == 5
    roomy = generate_one(new_engine(tiny("llama")), prompt, greedy(max_tokens=5))
    assert longest == roomy


def test_the_prompt_is_left_as_it_was(tiny: Tiny):
    prompt = random_prompt(5, seed=5)
    kept = list(prompt)
    generate_one(new_engine(tiny("llama")), prompt, greedy())
    assert prompt == kept


def test_an_engine_answers_in_bfloat16_too(tiny: Tiny, device: str):
    engine = new_engine(tiny("qwen3"), dtype=torch.bfloat16, device=device)
    assert engine.kv_cache.k_cache(0).dtype == torch.bfloat16
    answer = generate_one(engine, random_prompt(5, seed=5), greedy())
    assert len(answer) == NEW_TOKENS


# --- several requests in one forward --------------------------------------------------


def place(engine: Engine, prompt: list[int], row: int) -> Req:
    """A request on its own pages, with room for its answer."""
    num_pages = engine.num_pages // 4
    size = engine.config.page_size
    assert num_pages * size >= len(prompt) + NEW_TOKENS
    pages = range(row * num_pages, (row + 1) * num_pages)
    engine.tables.write_tokens(row, 0, prompt)
    engine.tables.write_slots(row, 0, slots_of_pages(pages, size))
    tokens = array("i", prompt)
    return Req(tokens, row, 0, NEW_TOKENS, uid=row, sampling_params=greedy())


def step(engine: Engine, reqs: list[Req], phase: Any) -> None:
    batch = Batch(reqs, phase)
    sampled = batch.sampled_reqs
    tokens = engine.forward_batch(batch).next_tokens
    assert tokens.dtype == torch.int64 and tokens.shape == (len(sampled),)
    for req, token in zip(sampled, tokens.tolist(), strict=True):
        req.append_host(token)


def answer_of(req: Req) -> list[int]:
    return list(req.input_ids[req.prompt_len :])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_requests_that_share_a_batch_are_answered_as_if_alone(
    page_size: int, device: str, tiny: Tiny, expected: Any
):
    """One prompt whole, one in slices, one that joins while the others decode."""
    engine = new_engine(
        tiny("qwen3"),
        page_size=page_size,
        device=device,
        num_page_override=4 * num_pages_for(96, page_size),
    )
    first, sliced, late = (
        place(engine, random_prompt(length, seed=length), row)
        for row, length in ((2, 17), (0, 33), (3, 5))
    )
    sliced.limit_chunk(10)
    step(engine, [first, sliced], "prefill")
    sliced.limit_chunk(7)
    step(engine, [sliced], "prefill")
    assert (sliced.cached_len, len(answer_of(sliced))) == (17, 0)
    step(engine, [sliced, first, late], "prefill")
    running = [late, first, sliced]
    while running:
        step(engine, running, "decode")
        running = [req for req in running if req.can_decode]
    for req in (first, sliced, late):
        assert answer_of(req) == expected("qwen3", req.prompt_len, device)


def test_the_sampled_token_is_in_the_token_pool_and_the_lengths_moved_on(tiny: Tiny):
    engine = new_engine(tiny("llama"), num_page_override=4 * 96)
    req = place(engine, random_prompt(5, seed=5), row=1)
    output = engine.forward_batch(Batch([req], "prefill"))
    assert (req.cached_len, req.device_len) == (5, 6)
    assert len(req.input_ids) == 5, "appending is the caller's affair"
    assert engine.tables.token_pool[1, 5] == output.next_tokens[0]


def test_two_engines_live_side_by_side(tiny: Tiny, expected: Any):
    by_hand = Context()
    set_global_ctx(by_hand)
    one, other = new_engine(tiny("llama")), new_engine(tiny("qwen3"), page_size=4)
    prompt = random_prompt(17, seed=17)
    for name, engine in (("llama", one), ("qwen3", other), ("llama", one)):
        assert generate_one(engine, prompt, greedy()) == expected(name, 17, "cpu")


# --- the end of an answer -------------------------------------------------------------


def with_eos(tiny: Tiny, root: Path, generation_config: Any, config_eos: Any) -> Path:
    """Tiny llama with this generation_config.json (None: no such file) and eos."""
    path = shutil.copytree(tiny("llama"), root / "model")
    file = path / "generation_config.json"
    file.unlink(missing_ok=True)
    if generation_config is not None:
        file.write_text(json.dumps(generation_config))
    config = json.loads((path / "config.json").read_text())
    config["eos_token_id"] = config_eos
    (path / "config.json").write_text(json.dumps(config))
    return path


# "first" stands for a token that the answer holds at place 6, "other" at place 3, and
# "absent" for one that it does not hold
EOS_SETTINGS: dict[str, tuple[Any, Any, int]] = {
    "one id": ({"eos_token_id": "first"}, None, 7),
    "a list of ids": ({"eos_token_id": ["absent", "first", "other"]}, None, 4),
    "a list that the answer never meets": (
        {"eos_token_id": ["absent"]},
        "first",
        NEW_TOKENS,
    ),
    "only the config": (None, "first", 7),
    "a list in the config": (None, ["first", "other"], 4),
    "both, and they differ": ({"eos_token_id": "first"}, "other", 7),
    "none at all": ({}, None, NEW_TOKENS),
    "neither file has one": (None, None, NEW_TOKENS),
    "only the config, though both are there": ({}, "first", NEW_TOKENS),
}


@pytest.mark.parametrize("what", EOS_SETTINGS)
def test_an_answer_ends_at_eos_exactly_as_in_generate(
    what: str, tiny: Tiny, tmp_path: Path, expected: Any
):
    generation_config, config_eos, length = EOS_SETTINGS[what]
    full = expected("llama", 17, "cpu")
    absent = min(set(range(VOCAB_SIZE)) - set(full))
    assert full.index(full[6]) == 6 and full.index(full[3]) == 3
    ids = {"first": full[6], "other": full[3], "absent": absent}

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        return ids.get(value) if isinstance(value, str) else value

    path = with_eos(tiny, tmp_path, filled(generation_config), filled(config_eos))
    prompt = random_prompt(17, seed=17)
    ours = generate_one(new_engine(path, page_size=4), prompt, greedy())
    assert ours == hf_greedy(load_hf(path), prompt, NEW_TOKENS)
    assert ours == full[:length]


def test_eos_is_ignored_when_asked(tiny: Tiny, tmp_path: Path, expected: Any):
    full = expected("llama", 17, "cpu")
    path = with_eos(tiny, tmp_path, {"eos_token_id": full[:3]}, None)
    engine, prompt = new_engine(path), random_prompt(17, seed=17)
    assert generate_one(engine, prompt, greedy(ignore_eos=True)) == full
    assert generate_one(engine, prompt, greedy()) == full[:1]


def test_eos_in_the_prompt_ends_nothing(tiny: Tiny, tmp_path: Path, expected: Any):
    full, prompt = expected("llama", 17, "cpu"), random_prompt(17, seed=17)
    quiet = [token for token in prompt if token not in full]
    path = with_eos(tiny, tmp_path, {"eos_token_id": quiet}, None)
    assert generate_one(new_engine(path), prompt, greedy()) == full


def test_a_damaged_generation_config_is_named(tiny: Tiny, tmp_path: Path):
    path = with_eos(tiny, tmp_path, {}, None)
    (path / "generation_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"generation_config\.json is damaged"):
        load_eos_token_ids(path)


# --- the sampler ----------------------------------------------------------------------


def random_logits(rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocab, generator=generator) * 3


def drawing_req(num_generated: int = 0, **params: Any) -> Req:
    """A request that draws number `num_generated` of its answer next."""
    params = {"temperature": 1.0, **params}
    req = Req(array("i", [1, 2]), 0, 0, 99, 0, sampling_params=SamplingParams(**params))
    for _ in range(num_generated):
        req.complete_one()
    return req


def warped_probs(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float
) -> torch.Tensor:
    """The distribution that transformers would draw from; logits [vocab]."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k > 0:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    ids = torch.zeros(1, 1, dtype=torch.int64)
    return warpers(ids, logits.double()[None]).softmax(dim=-1)[0]


def drawn_shares(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, grid: int
) -> torch.Tensor:
    """How often each token is drawn when the uniform numbers are an even grid."""
    tokens = sample_rows(
        logits.expand(grid, -1),
        temperature=[temperature] * grid,
        top_k=[top_k] * grid,
        top_p=[top_p] * grid,
        uniform=[(i + 0.5) / grid for i in range(grid)],
    )
    return tokens.bincount(minlength=logits.shape[-1]).cpu() / grid


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [(-1, 1.0), (1, 1.0), (5, 1.0), (999, 1.0), (-1, 0.9), (-1, 0.3), (8, 0.7)],
)
def test_tokens_are_drawn_as_often_as_transformers_would(
    temperature: float, top_k: int, top_p: float, device: str
):
    """On an even grid each share is within one grid step of its probability."""
    grid = 4000
    for row in random_logits(3, vocab=40):
        expected = warped_probs(row, temperature, top_k, top_p)
        shares = drawn_shares(row.to(device), temperature, top_k, top_p, grid)
        assert (shares - expected).abs().max().item() <= 1 / grid + 1e-6
        assert shares[expected == 0].eq(0).all(), "a token outside the set was drawn"
        assert shares[expected > 1 / grid].gt(0).all(), "a token of the set never is"


def test_top_p_of_what_top_k_left_is_not_top_p_of_all():
    """0.5, 0.3, 0.2: the best two hold 0.8, of which 0.6 is 0.48 < 0.5."""
    row = torch.tensor([0.3, 0.5, 0.2]).log()
    assert drawn_shares(row, 1.0, -1, 0.6, 1000).tolist() == pytest.approx(
        [0.375, 0.625, 0], abs=0.001
    )
    assert drawn_shares(row, 1.0, 2, 0.6, 1000).tolist() == [0, 1, 0]


def test_rows_have_parameters_of_their_own():
    row = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    tokens = sample_rows(
        row.expand(5, -1),
        temperature=[1.0, 1.0, 1.0, 1e-3, 1.0],
        top_k=[-1, 2, -1, -1, -1],
        top_p=[1.0, 1.0, 0.1, 1.0, 1.0],
        uniform=[0.999, 0.999, 0.999, 0.999, 0.0],
    )
    assert tokens.tolist() == [0, 2, 3, 3, 3]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6])
def test_a_tiny_temperature_takes_the_most_likely_token(
    temperature: float, uniform: float
):
    logits = random_logits(4, vocab=50_000)
    tokens = sample_rows(logits, [temperature] * 4, [-1] * 4, [1.0] * 4, [uniform] * 4)
    assert tokens.tolist() == logits.argmax(dim=-1).tolist()


@pytest.mark.parametrize("temperature", [1e6, 1e308])
def test_a_huge_temperature_makes_all_tokens_alike(temperature: float):
    shares = drawn_shares(random_logits(1, vocab=8)[0], temperature, -1, 1.0, 800)
    assert shares.tolist() == pytest.approx([1 / 8] * 8, abs=2 / 800)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_uniform_range_draw_tokens_that_are_left(uniform: float):
    logits = random_logits(2, vocab=50_000)
    for top_k, top_p in ((-1, 1.0), (3, 1.0), (-1, 1e-9), (10**400, 0.5)):
        drawn = sample_rows(logits, [1.0] * 2, [top_k] * 2, [top_p] * 2, [uniform] * 2)
        rank = (logits > logits.gather(1, drawn[:, None])).sum(dim=-1)
        if uniform == 0 or top_p == 1e-9:
            assert rank.tolist() == [0, 0]
        elif top_k == 3:
            assert rank.tolist() == [2, 2]
        else:
            assert rank.min().item() > 10


def test_greedy_takes_the_most_likely_token_and_the_first_of_equals(device: str):
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, -1.0, 5.0]], device=device)
    reqs = [drawing_req(temperature=0.0), drawing_req(top_k=1)]
    tokens = Sampler().sample(logits, reqs)
    assert tokens.tolist() == [1, 0]
    assert tokens.dtype == torch.int64 and tokens.device == logits.device


def test_a_batch_without_requests_to_sample_gives_no_token():
    assert Sampler().sample(torch.empty(0, 9), []).tolist() == []


FLAT = torch.zeros(1, 10_000)  # every draw of its own lands on a token of its own


def draw(req: Req) -> int:
    return Sampler().sample(FLAT, [req]).item()


def test_a_seeded_request_draws_the_same_alone_and_in_any_company():
    seeds = [3, 14, 65, 92]
    alone = {seed: draw(drawing_req(2, seed=seed)) for seed in seeds}
    assert len(set(alone.values())) == 4
    sampler = Sampler()
    for order in ([3, 14, 65, 92], [92, 65, 3, 14], [65, None, 3, 0]):
        reqs = [
            drawing_req(5, temperature=0.0) if seed == 0 else drawing_req(2, seed=seed)
            for seed in order
        ]
        tokens = sampler.sample(FLAT.expand(len(reqs), -1), reqs).tolist()
        for seed, token in zip(order, tokens, strict=True):
            if seed:
                assert token == alone[seed]


def test_every_draw_of_a_seeded_request_is_a_new_one():
    draws = [draw(drawing_req(n, seed=7)) for n in range(20)]
    assert len(set(draws)) > 15
    assert draws == [draw(drawing_req(n, seed=7)) for n in range(20)]


def test_seeds_do_not_run_into_one_another():
    """Seed 1 at draw 11 is not seed 11 at draw 1."""
    assert draw(drawing_req(11, seed=1)) != draw(drawing_req(1, seed=11))


def test_the_draw_of_a_seed_does_not_change_between_runs_of_python():
    """A seed that someone noted down must stay good: this is a recorded value."""
    assert draw(drawing_req(0, seed=42)) == 2667


def test_unseeded_requests_draw_different_numbers():
    def twenty() -> list[int]:
        reqs = [drawing_req() for _ in range(20)]
        return Sampler().sample(FLAT.expand(20, -1), reqs).tolist()

    first, second = twenty(), twenty()
    assert first != second and len(set(first)) > 10


def test_greedy_rows_are_the_same_beside_sampled_ones():
    logits = random_logits(4, vocab=100)
    reqs = [
        drawing_req(temperature=0.0),
        drawing_req(seed=1),
        drawing_req(temperature=0.0),
        drawing_req(temperature=9.0),
    ]
    tokens = Sampler().sample(logits, reqs).tolist()
    best = logits.argmax(dim=-1).tolist()
    assert (tokens[0], tokens[2]) == (best[0], best[2])


def test_sampling_leaves_the_logits_as_they_were():
    logits = random_logits(2, vocab=10)
    kept = logits.clone()
    Sampler().sample(logits, [drawing_req(seed=1, top_k=2), drawing_req(top_p=0.5)])
    assert torch.equal(logits, kept)


def test_an_answer_with_a_seed_can_be_had_again(tiny: Tiny):
    engine, prompt = new_engine(tiny("llama")), random_prompt(5, seed=5)

    def answer(seed: int | None) -> list[int]:
        params = SamplingParams(temperature=5.0, seed=seed, max_tokens=30)
        return generate_one(engine, prompt, params)

    first = answer(1)
    assert answer(1) == first
    assert answer(2) != first
    assert answer(None) != answer(None)


# --- settings, memory and devices -----------------------------------------------------


BAD_SETTINGS: list[tuple[str, Any]] = [
    *(
        (name, value)
        for name in ("page_size", "max_running_req")
        for value in (0, -1, 1.5, True, "4", None)
    ),
    *(
        (name, value)
        for name in ("max_seq_len_override", "num_page_override")
        for value in (0, -1, 2.0, True, "4")
    ),
    *(("memory_ratio", value) for value in (0, -0.5, 1.01, True, "1", None)),
    ("memory_ratio", float("nan")),
    *(("dtype", value) for value in ("float32", torch.int8, torch.float64)),
]


@pytest.mark.parametrize(("name", "value"), BAD_SETTINGS, ids=str)
def test_a_bad_setting_is_named(name: str, value: Any):
    with pytest.raises(EngineConfigError) as caught:
        EngineConfig("anywhere", **{name: value})
    assert str(caught.value).startswith(f"{name} is {value!r}; it must be ")


def test_the_defaults_are_settings_that_make_sense():
    config = EngineConfig("anywhere")
    assert (config.page_size, config.dtype, config.device) == (1, None, "auto")
    assert config.num_page_override is config.max_seq_len_override is None


# a token of tiny llama takes 2 * 3 layers * 2 heads * 8 numbers * 4 bytes
BYTES_PER_TOKEN = 2 * 3 * 2 * 8 * 4


def with_free_memory(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr("minisgl.engine.engine.free_memory", lambda device: num_bytes)


def kv_bytes(engine: Engine) -> int:
    pool = engine.kv_cache
    views = (pool.k_cache(0), pool.v_cache(0))
    return sum(view.untyped_storage().nbytes() for view in views)


@pytest.mark.parametrize("ratio", [0.5, 0.25, 1])
def test_the_pool_takes_its_share_of_the_free_memory(
    ratio: float, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    page_bytes = 4 * BYTES_PER_TOKEN
    with_free_memory(monkeypatch, 24 * page_bytes - 1)
    engine = new_engine(tiny("llama"), page_size=4, memory_ratio=ratio)
    assert engine.num_pages == int(24 * ratio) - 1
    assert kv_bytes(engine) == engine.num_pages * page_bytes


def test_the_pool_takes_no_more_than_all_rows_can_fill(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    with_free_memory(monkeypatch, 10**12)
    engine = new_engine(
        tiny("llama"), page_size=16, max_running_req=3, max_seq_len_override=33
    )
    assert engine.num_pages == 3 * 3


def test_the_number_of_pages_can_be_given(tiny: Tiny, monkeypatch: pytest.MonkeyPatch):
    with_free_memory(monkeypatch, 0)
    engine = new_engine(tiny("llama"), page_size=4, num_page_override=7)
    assert engine.num_pages == 7
    assert kv_bytes(engine) == 7 * 4 * BYTES_PER_TOKEN


def test_too_little_memory_for_a_page_says_how_much_it_takes(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    page_bytes = 16 * BYTES_PER_TOKEN
    with_free_memory(monkeypatch, 2 * page_bytes - 1)
    with pytest.raises(DeviceError) as caught:
        new_engine(tiny("llama"), page_size=16)
    message = str(caught.value)
    assert f"{page_bytes} bytes" in message and "memory_ratio" in message


def test_the_longest_request_is_the_models_unless_a_shorter_one_is_asked_for(
    tiny: Tiny,
):
    for asked, longest in ((None, 512), (100, 100), (10**6, 512)):
        engine = new_engine(
            tiny("llama"), max_seq_len_override=asked, num_page_override=1
        )
        assert engine.max_seq_len == longest


def test_an_engine_of_a_directory_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="nowhere"):
        new_engine(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["gpu", "meta", "cpu:x", "", None, 3.5])
def test_an_unknown_device_is_named_with_those_known(name: Any):
    with pytest.raises(DeviceError) as caught:
        pick_device(name)
    assert repr(name) in str(caught.value) and "'cuda'" in str(caught.value)


def test_without_cuda_auto_is_the_cpu_and_cuda_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="device='cpu'"):
        pick_device("cuda")


def test_with_cuda_auto_is_the_gpu_and_its_number_must_exist(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto").type == "cuda"
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(DeviceError, match="'cuda:2'.* 2 CUDA"):
        pick_device("cuda:2")


def test_an_unknown_device_is_refused_before_the_model_is_loaded(tmp_path: Path):
    with pytest.raises(DeviceError, match="'tpu'"):
        new_engine(tmp_path / "nowhere", device="tpu")


def test_a_device_knows_its_free_memory_and_can_be_waited_for(device: str):
    picked = pick_device(device)
    assert free_memory(picked) > 2**20
    synchronize(picked)


def test_everything_of_an_engine_is_on_its_device(device: str, tiny: Tiny):
    engine = new_engine(tiny("llama"), device=device, dtype=None)
    tensors = [
        engine.model.embedding,
        engine.kv_cache.k_cache(0),
        engine.tables.page_table,
        engine.tables.token_pool,
    ]
    assert {tensor.device.type for tensor in tensors} == {device}
    assert engine.dtype == (torch.bfloat16 if device == "cuda" else torch.float32)


# --- bad requests ---------------------------------------------------------------------

BAD_PROMPTS: dict[str, tuple[Any, str]] = {
    "empty": ([], "the prompt is empty"),
    "as long as a request may be": ([1] * 128, "has 128 tokens; at most 127 fit"),
    "longer": ([1] * 500, "has 500 tokens; at most 127 fit"),
    "a negative token": ([1, -1], "-1 is not a token id; they are 0 to 150"),
    "a token behind the vocabulary": ([150, 151], "151 is not a token id"),
    "a float": ([1.0], r"1\.0 is not a token id"),
    "a boolean": ([True], "True is not a token id"),
    "a text": ("Hello", "'H' is not a token id"),
}


@pytest.mark.parametrize("what", BAD_PROMPTS)
def test_a_prompt_that_cannot_be_served_is_refused_and_changes_nothing(
    what: str, tiny: Tiny, expected: Any
):
    prompt, message = BAD_PROMPTS[what]
    engine = new_engine(tiny("llama"), page_size=4)
    tokens = engine.tables.token_pool.clone()
    with pytest.raises(PromptError, match=message):
        generate_one(engine, prompt, greedy())
    assert torch.equal(engine.tables.token_pool, tokens)
    good = random_prompt(5, seed=5)
    assert generate_one(engine, good, greedy()) == expected("llama", 5, "cpu")


def test_the_longest_prompt_that_fits_gets_one_token(tiny: Tiny):
    engine = new_engine(tiny("llama"))
    assert len(generate_one(engine, random_prompt(127, seed=1), greedy())) == 1


@pytest.mark.parametrize("prompt_len", [13, 5])
def test_a_request_that_outgrows_the_pool_is_refused_and_the_next_is_served(
    prompt_len: int, tiny: Tiny, expected: Any
):
    """Three pages of four: 13 tokens never fit, and 5 outgrow them while decoding."""
    engine = new_engine(tiny("llama"), page_size=4, num_page_override=3)
    with pytest.raises(PoolError, match="of 3 are free"):
        generate_one(engine, random_prompt(prompt_len, seed=5), greedy())
    # the last token is never fed: 5 + 8 tokens need room for 12
    answer = generate_one(engine, random_prompt(5, seed=5), greedy(max_tokens=8))
    assert answer == expected("llama", 5, "cpu")[:8]
