"""Chapter 13: Qwen3.5, and the pool of recurrent states."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hybrid_driver import Driver
from tiny_models import build_tiny, hf_greedy, hf_logits, load_hf, random_prompt

from minisgl.attention.dense import DenseAttention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.engine.generate import generate_one
from minisgl.errors import DeviceError, EngineConfigError, ModelError, PoolError
from minisgl.kvcache.state_pool import (
    LayerState,
    StatePool,
    StateShape,
    prepare_states,
)
from minisgl.layers import gated_delta
from minisgl.layers.causal_conv import causal_conv
from minisgl.layers.gated_delta import delta_step, gated_delta_rule
from minisgl.layers.rotary import Rotation
from minisgl.models import qwen3_5
from minisgl.models.config import ModelConfig
from minisgl.models.qwen3_5 import rotate_part, unit_length
from minisgl.models.registry import load_model

Tiny = Callable[[str], Path]
CPU = torch.device("cpu")
PROMPT_LENS = [1, 2, 3, 4, 17, 63, 64, 65, 130]
NEW_TOKENS = 12


def new_engine(model_dir: Path, **settings: Any) -> Engine:
    small = dict(
        device="cpu", dtype=torch.float32, max_running_req=4, max_seq_len_override=192
    )
    return Engine(EngineConfig(model_dir, **{**small, **settings}))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> Callable[[int, str], list[int]]:
    """expected(17, "cpu"): how `generate` continues random_prompt(17, 17)."""
    known: dict[tuple[int, str], list[int]] = {}
    models: dict[str, Any] = {}

    def lookup(length: int, device: str = "cpu") -> list[int]:
        if (length, device) not in known:
            if device not in models:
                models[device] = load_hf(tiny("qwen3_5"), device)
            prompt = random_prompt(length, seed=length)
            known[length, device] = hf_greedy(models[device], prompt, NEW_TOKENS)
        return known[length, device]

    return lookup


def max_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


# --- the rule -------------------------------------------------------------------------


class Delta:
    """Random inputs of the rule for one request, and what the recurrence makes of
    them, one token after the other."""

    heads, key_dim, value_dim = 3, 5, 4

    def __init__(self, num_tokens: int, seed: int = 0, decay: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(num_tokens, self.heads, *shape, generator=generator)

        q, k = (unit_length(random(self.key_dim)) for _ in "qk")
        log_decay = -decay * F.softplus(random())
        self.inputs = (q, k, random(self.value_dim), log_decay, random().sigmoid())
        self.state = torch.randn(
            self.heads, self.key_dim, self.value_dim, generator=generator
        )

    def recurrent(self, num_tokens: int | None = None) -> tuple[torch.Tensor, ...]:
        """(out, state) after the first `num_tokens`."""
        outs, state = [], self.state[None]
        for token in zip(*(x[:num_tokens] for x in self.inputs), strict=True):
            out, state = delta_step(*(x[None] for x in token), state)
            outs.append(out)
        return torch.cat(outs), state[0]


CHUNK_BORDERS = [1, 2, 63, 64, 65, 127, 128, 129, 200]


@pytest.mark.parametrize("num_tokens", CHUNK_BORDERS)
@pytest.mark.parametrize("decay", [0.0, 0.05, 1.0, 30.0])
def test_chunks_equal_the_recurrence(num_tokens: int, decay: float):
    """From no fading at all to forgetting all but the last token, where the product of
    the decays of a chunk is too small for a float."""
    delta = Delta(num_tokens, decay=decay)
    out, state = gated_delta_rule(*delta.inputs, delta.state)
    wanted_out, wanted_state = delta.recurrent()
    assert wanted_out.abs().max() > 0.1
    assert max_difference(out, wanted_out) < 2e-5
    assert max_difference(state, wanted_state) < 2e-5


@pytest.mark.parametrize("border", [1, 10, 63, 64, 65, 99])
def test_a_rule_that_is_interrupted_goes_on_from_the_state(border: int):
    delta = Delta(100)
    first, state = gated_delta_rule(*(x[:border] for x in delta.inputs), delta.state)
    assert max_difference(state, delta.recurrent(border)[1]) < 2e-5
    second, state = gated_delta_rule(*(x[border:] for x in delta.inputs), state)
    out, wanted_state = delta.recurrent()
    assert max_difference(torch.cat([first, second]), out) < 2e-5
    assert max_difference(state, wanted_state) < 2e-5


def test_the_rule_leaves_the_state_it_was_given_alone():
    delta = Delta(70)
    before = delta.state.clone()
    gated_delta_rule(*delta.inputs, delta.state)
    delta_step(*(x[:1] for x in delta.inputs), delta.state[None])
    assert torch.equal(delta.state, before)


def test_no_tokens_change_nothing():
    delta = Delta(0)
    out, state = gated_delta_rule(*delta.inputs, delta.state)
    assert out.shape == (0, 3, 4) and torch.equal(state, delta.state)


def test_one_step_by_hand():
    """A head of one key and one value: S = 2, decay 1/2, beta 1/4."""

    def one(*values: float) -> torch.Tensor:
        return torch.tensor(values).view(1, 1, -1)

    half = torch.tensor([[0.5]]).log()
    out, state = delta_step(
        one(3.0), one(1.0), one(5.0), half, torch.tensor([[0.25]]), one(2.0)[..., None]
    )
    assert state.item() == 2.0  # 2 / 2 = 1, then 1 + (5 - 1) / 4
    assert out.item() == 6.0


def test_beta_one_writes_the_value_under_its_key():
    torch.manual_seed(0)
    key = F.normalize(torch.randn(1, 1, 4), dim=-1)
    value, state = torch.randn(1, 1, 3), torch.randn(1, 1, 4, 3)
    none, one = torch.zeros(1, 1), torch.ones(1, 1)
    out, _ = delta_step(key, key, value, none, one, state)
    torch.testing.assert_close(out, value)


def test_the_chunked_form_agrees_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch):
    delta = Delta(50)
    wanted, _ = delta.recurrent()
    for chunk in (1, 7, 50):
        monkeypatch.setattr(gated_delta, "CHUNK", chunk)
        assert (
            max_difference(gated_delta_rule(*delta.inputs, delta.state)[0], wanted)
            < 2e-5
        )


def test_a_convolution_sees_each_channels_last_values():
    weight = torch.tensor([[100.0, 10.0, 1.0], [0.0, 0.0, 1.0]])
    seen = torch.tensor([[[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, -8.0]]])
    out = causal_conv(seen, weight)
    wanted = torch.tensor([[[123.0, 7.0], [234.0, -8.0]]])
    torch.testing.assert_close(out, F.silu(wanted))


def test_only_the_first_dimensions_of_a_head_are_turned():
    heads = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    quarter = Rotation(torch.zeros(1, 1, 2), torch.tensor([[[-1.0, 1.0]]]))
    assert rotate_part(heads, quarter).tolist() == [[[-2.0, 1.0, 3.0, 4.0]]]


# --- the model ------------------------------------------------------------------------


def load(model_dir: Path, device: str = "cpu") -> Any:
    return load_model(model_dir, torch.float32, torch.device(device))


def new_req(prompt: list[int], row: int = 0, cached_len: int = 0, max_tokens: int = 8):
    params = SamplingParams(max_tokens=max_tokens)
    return Req(array("i", prompt), row, cached_len, max_tokens, row, params)


@torch.inference_mode()
def logits_of(model: Any, *prompts: list[int]) -> torch.Tensor:
    """Logits of all tokens of the prompts, which lie behind one another."""
    device = model.embedding.device
    reqs = [new_req(prompt, row) for row, prompt in enumerate(prompts)]
    for req in reqs:
        req.mamba_pool_idx = req.table_idx
    batch = Batch(reqs, "prefill")
    batch.input_ids = torch.tensor([t for p in prompts for t in p], device=device)
    batch.positions = torch.cat([torch.arange(len(p)) for p in prompts]).to(device)
    pool = StatePool(StateShape.of(model.config), len(reqs), torch.float32, device)
    prepare_states(pool, batch, device)
    ctx = Context()
    ctx.attn_backend = DenseAttention()
    with ctx.forward_batch(batch):
        return model.forward(batch)


def test_logits_equal_those_of_hugging_face(tiny: Tiny, device: str):
    prompt = random_prompt(150, seed=1)
    ours = logits_of(load(tiny("qwen3_5"), device), prompt)
    theirs = hf_logits(load_hf(tiny("qwen3_5"), device), prompt)
    assert theirs.std() > 1, "the comparison needs logits that differ"
    assert max_difference(ours, theirs) < 1e-4


def test_logits_of_a_model_with_other_sizes_equal_those_of_hugging_face(tmp_path: Path):
    """Tied embeddings, biases, one value head for each key head, longer convolution."""
    path = build_tiny(
        "qwen3_5",
        tmp_path,
        tie_word_embeddings=True,
        attention_bias=True,
        linear_num_key_heads=3,
        linear_num_value_heads=3,
        linear_conv_kernel_dim=6,
        rope_parameters=dict(
            rope_type="default", rope_theta=1e5, partial_rotary_factor=0.5
        ),
    )
    prompt = random_prompt(90, seed=1)
    ours = logits_of(load(path), prompt)
    theirs = hf_logits(load_hf(path), prompt)
    # Tied embeddings make logits of up to 15, whose rounding alone is over 1e-4, in
    # Hugging Face's as in ours: the bound is a share of their spread, here 3.6.
    assert max_difference(ours, theirs) < 1e-4 * theirs.std()


def test_several_requests_in_a_batch_do_not_see_each_other(tiny: Tiny):
    model = load(tiny("qwen3_5"))
    prompts = [random_prompt(n, seed=n) for n in (3, 1, 70)]
    together = logits_of(model, *prompts).split([3, 1, 70])
    for prompt, logits in zip(prompts, together, strict=True):
        assert max_difference(logits, logits_of(model, prompt)) < 1e-4


def of_linear_layers(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda model: [change(x.mixer) for x in model.layers if x.is_linear]


def of_full_layers(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda model: [change(x.mixer) for x in model.layers if not x.is_linear]


def uncenter(norm: Any) -> None:
    norm.weight = norm.weight - 1


def swap_query_and_gate(mixer: Any) -> None:
    q_rows = mixer.qkv_proj.weight[: mixer.sizes[0]]
    pairs = q_rows.view(-1, 2, mixer.head_dim, q_rows.shape[1])
    pairs.copy_(pairs.flip(1).clone())


SPECIALITIES: dict[str, Callable[[Any], None]] = {
    "the convolution": of_linear_layers(lambda m: m.conv_weight[:, :-1].zero_()),
    "the decay by head": of_linear_layers(lambda m: m.decay_rate.fill_(1.0)),
    "the bias of the decay": of_linear_layers(lambda m: m.decay_bias.zero_()),
    "the norm of the linear layers": of_linear_layers(lambda m: m.norm.weight.fill_(1)),
    "which of the two is the gate": of_full_layers(swap_query_and_gate),
    "the norm of the queries": of_full_layers(lambda m: uncenter(m.q_norm)),
    "the norm of the keys": of_full_layers(lambda m: uncenter(m.k_norm)),
    "the first norm": lambda model: [uncenter(x.input_norm) for x in model.layers],
    "the second norm": lambda model: [uncenter(x.post_norm) for x in model.layers],
    "the final norm": lambda model: uncenter(model.norm),
}


@pytest.mark.parametrize("what", SPECIALITIES)
def test_the_tiny_model_notices_when_a_speciality_is_dropped(what: str, tiny: Tiny):
    prompt = random_prompt(100, seed=1)
    model = load(tiny("qwen3_5"))
    right = logits_of(model, prompt)
    with torch.inference_mode():
        SPECIALITIES[what](model)
    assert max_difference(logits_of(model, prompt), right) > 0.05


def test_the_tiny_model_notices_a_rotation_of_the_whole_head(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    prompt = random_prompt(100, seed=1)
    model = load(tiny("qwen3_5"))
    right = logits_of(model, prompt)
    monkeypatch.setattr(qwen3_5, "rotate_part", lambda heads, rotation: heads)
    assert max_difference(logits_of(model, prompt), right) > 0.05


def test_a_surplus_weight_is_named(tiny: Tiny, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    weights = load_file(tiny("qwen3_5") / "model.safetensors")
    weights["mtp.fc.weight"] = torch.zeros(2)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    config = (tiny("qwen3_5") / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match="1 weights have no use: mtp.fc.weight"):
        load(tmp_path)


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_greedy_tokens_equal_those_of_generate(
    page_size: int, device: str, tiny: Tiny, expected: Any
):
    """Prompts shorter than the convolution looks back, and around borders of chunks."""
    engine = new_engine(tiny("qwen3_5"), page_size=page_size, device=device)
    for length in PROMPT_LENS:
        params = SamplingParams(max_tokens=NEW_TOKENS)
        ours = generate_one(engine, random_prompt(length, seed=length), params)
        assert ours == expected(length, device), f"prompt of {length} tokens"


@pytest.mark.parametrize("chunk", [1, 2, 3, 63, 64, 65])
def test_a_prompt_in_slices_gives_the_same_tokens(
    chunk: int, tiny: Tiny, expected: Any
):
    driver = Driver(new_engine(tiny("qwen3_5"), page_size=4))
    for length in (17, 65, 130):
        prompt = random_prompt(length, seed=length)
        assert driver.answer(prompt, NEW_TOKENS, chunk) == expected(length)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_requests_of_all_lengths_in_a_batch_get_the_same_tokens(
    page_size: int, device: str, tiny: Tiny, expected: Any
):
    """Two rounds, so that the second finds used states in its slots."""
    engine = new_engine(tiny("qwen3_5"), page_size=page_size, device=device)
    driver = Driver(engine)
    for lengths in ([1, 17, 65], [64, 3, 130]):
        reqs = {n: driver.start(random_prompt(n, seed=n), NEW_TOKENS) for n in lengths}
        first, *rest = reqs.values()
        driver.prefill(first)
        driver.decode(first)
        driver.prefill(*rest, chunk=50)
        while running := [req for req in reqs.values() if req.can_decode]:
            driver.decode(*running)
        answers = {n: driver.finish(req) for n, req in reqs.items()}
        assert answers == {n: expected(n, device) for n in lengths}
    assert engine.pools.states.num_free == engine.pools.states.num_slots


# --- states that are copied, kept and taken up ----------------------------------------


def share_prefix(
    driver: Driver, prompt: list[int], cached_len: int, source: int
) -> Req:
    """A request whose first tokens are those of row 0, and whose state is a copy of the
    one in `source`."""
    req = driver.start(prompt, NEW_TOKENS)
    tables, states = driver.engine.tables, driver.engine.pools.states
    tables.write_slots(
        req.table_idx, 0, tables.read_slots(driver.first_row, 0, cached_len)
    )
    req.cached_len = cached_len
    req.mamba_pool_idx = states.allocate()
    states.copy(source, req.mamba_pool_idx)
    return req


@pytest.mark.parametrize("chunk", [None, 16, 40])
@pytest.mark.parametrize("kept_len", [1, 2, 16, 63, 64, 65, 96, 130])
def test_a_state_left_midway_lets_another_request_go_on_from_there(
    kept_len: int, chunk: int | None, tiny: Tiny, expected: Any
):
    """It stands for exactly that many tokens, wherever the slices of the prompt end."""
    engine = new_engine(tiny("qwen3_5"))
    driver, states = Driver(engine), engine.pools.states
    prompt = random_prompt(130, seed=130)
    first = driver.start(prompt, NEW_TOKENS)
    driver.first_row = first.table_idx
    first.mamba_track_idx = states.allocate()
    first.mamba_last_track_seqlen = kept_len
    driver.prefill(first, chunk=chunk)
    while first.can_decode:
        driver.decode(first)
    assert list(first.input_ids[130:]) == expected(130), "keeping it changes nothing"

    other_prompt = [*prompt[:kept_len], *random_prompt(20, seed=7)]
    other = share_prefix(driver, other_prompt, kept_len, first.mamba_track_idx)
    driver.prefill(other)
    while other.can_decode:
        driver.decode(other)
    alone = Driver(new_engine(tiny("qwen3_5"))).answer(other_prompt, NEW_TOKENS)
    assert list(other.input_ids[len(other_prompt) :]) == alone


def test_a_state_copied_between_decode_steps_gives_the_same_continuation(
    tiny: Tiny, expected: Any
):
    driver = Driver(new_engine(tiny("qwen3_5")))
    states = driver.engine.pools.states
    req = driver.start(random_prompt(17, seed=17), NEW_TOKENS)
    driver.first_row = req.table_idx
    driver.prefill(req)
    for _ in range(4):
        driver.decode(req)
    kept, kept_len = states.allocate(), req.cached_len
    states.copy(req.mamba_pool_idx, kept)
    while req.can_decode:
        driver.decode(req)
    known = list(req.input_ids[: kept_len + 1])
    again = share_prefix(driver, known, kept_len, kept)
    driver.prefill(again)
    while again.can_decode:
        driver.decode(again)
    answer = list(again.input_ids[17:])
    assert answer[:NEW_TOKENS] == expected(17)


def test_a_state_kept_midway_of_one_request_in_a_batch_is_its_own(tiny: Tiny):
    """Prompts of 3 and 6 tokens in one batch: the state of the second after 4 tokens is
    what it would be if the second were alone."""
    prompts = [random_prompt(3, seed=1), random_prompt(6, seed=2)]

    def state_after_four(*prompts: list[int]) -> list[LayerState]:
        driver = Driver(new_engine(tiny("qwen3_5")))
        states = driver.engine.pools.states
        reqs = [driver.start(prompt, 1) for prompt in prompts]
        slot = reqs[-1].mamba_track_idx = states.allocate()
        reqs[-1].mamba_last_track_seqlen = 4
        driver.prefill(*reqs)
        return [states.read(layer, slot) for layer in range(3)]

    for ours, alone in zip(
        state_after_four(*prompts), state_after_four(prompts[1][:4]), strict=True
    ):
        assert max_difference(ours.conv, alone.conv) < 1e-5
        assert max_difference(ours.recurrent, alone.recurrent) < 1e-5


def test_a_request_that_starts_from_nothing_finds_a_clean_state(
    tiny: Tiny, expected: Any
):
    engine = new_engine(tiny("qwen3_5"))
    for layer in range(3):
        for part in engine.pools.states.read(layer, slice(None)):
            part.fill_(1e4)
    driver = Driver(engine)
    assert driver.answer(random_prompt(17, seed=17), NEW_TOKENS) == expected(17)


def test_a_length_outside_the_slice_leaves_no_state_midway():
    pool = small_pool(num_slots=3)
    req = new_req([1] * 9, cached_len=2)
    req.mamba_pool_idx, req.mamba_track_idx = 0, 1
    spans = {}
    for length in (0, 2, 3, 8, 9, 10):
        req.mamba_last_track_seqlen = length
        batch = Batch([req], "prefill")
        prepare_states(pool, batch, CPU)
        spans[length] = batch.state_metadata.spans[0].pieces
    whole = [(0, 7, 0)]
    assert spans == {
        0: whole,
        2: whole,
        3: [(0, 1, 1), (1, 7, 0)],
        8: [(0, 6, 1), (6, 7, 0)],
        9: [(0, 7, 1), (7, 7, 0)],
        10: whole,
    }


# --- the pool -------------------------------------------------------------------------


def small_pool(num_slots: int) -> StatePool:
    shape = StateShape(
        num_layers=2, conv_len=3, conv_dim=4, num_heads=2, key_dim=2, value_dim=3
    )
    return StatePool(shape, num_slots, torch.bfloat16, CPU)


def fill(pool: StatePool, slot: int, value: float) -> None:
    for layer in range(2):
        conv, recurrent = pool.read(layer, slot)
        state = LayerState(
            torch.full_like(conv, value), torch.full_like(recurrent, value)
        )
        pool.write(layer, slot, state)


def values(pool: StatePool) -> list[float]:
    """What each slot is filled with."""
    found = []
    for slot in range(pool.num_slots):
        parts = [x for layer in range(2) for x in pool.read(layer, slot)]
        (value,) = {v.item() for part in parts for v in part.flatten()}
        found.append(value)
    return found


def test_states_are_copied_and_cleared_in_all_layers():
    pool = small_pool(num_slots=4)
    for slot in range(4):
        fill(pool, slot, slot + 1)
    pool.copy(1, 3)
    pool.zero([0, 2])
    assert values(pool) == [0, 2, 0, 2]
    fill(pool, 1, 9)
    assert values(pool) == [0, 9, 0, 2], "a copy is a copy"


def test_states_of_several_slots_are_read_and_written_at_once():
    pool = small_pool(num_slots=3)
    fill(pool, 2, 5)
    slots = torch.tensor([2, 0])
    state = pool.read(1, slots)
    assert state.conv.shape == (2, 3, 4) and state.recurrent.shape == (2, 2, 2, 3)
    assert state.recurrent[:, 0, 0, 0].tolist() == [5, 0]
    pool.write(1, slots, LayerState(state.conv + 1, state.recurrent + 1))
    assert pool.read(1, 0).recurrent[0, 0, 0] == 1
    assert pool.read(1, 2).conv[0, 0] == 6
    assert pool.read(0, 2).conv[0, 0] == 5, "the other layer keeps its own"


def test_the_recurrent_part_is_float32_whatever_the_model():
    state = small_pool(num_slots=1).read(0, 0)
    assert state.conv.dtype == torch.bfloat16
    assert state.recurrent.dtype == torch.float32


def test_slots_are_handed_out_until_none_is_left():
    pool = small_pool(num_slots=2)
    assert [pool.allocate() for _ in range(3)] == [0, 1, None]
    pool.free(0)
    assert pool.num_free == 1
    with pytest.raises(PoolError, match="free already"):
        pool.free(0)
    assert pool.allocate() == 0
    pool.reset()
    assert pool.num_free == 2


def test_a_forward_without_a_state_is_a_bug_that_is_named():
    req = new_req([1, 2])
    with pytest.raises(AssertionError, match="a request has no state"):
        prepare_states(small_pool(1), Batch([req], "prefill"), CPU)


# --- the engine -----------------------------------------------------------------------


def test_the_sizes_of_a_state_are_read_from_the_config(tiny: Tiny):
    """3 linear layers; 2 key heads of 8 and 4 value heads of 12; 4 taps."""
    shape = StateShape.of(ModelConfig.from_dir(tiny("qwen3_5")))
    assert shape == StateShape(3, 3, 2 * 16 + 48, 4, 8, 12)
    assert shape.num_bytes(torch.float32) == 3 * 4 * (3 * 80 + 4 * 8 * 12)
    assert shape.num_bytes(torch.bfloat16) == 3 * (2 * 3 * 80 + 4 * 4 * 8 * 12)


def test_only_the_full_layers_have_kv(tiny: Tiny):
    engine = new_engine(tiny("qwen3_5"), num_page_override=10, page_size=4)
    assert len(engine.kv_cache._k_layers) == 1
    assert engine.pools.kv_bytes(1) == 2 * 2 * 16 * 4
    assert engine.pools.states.num_slots == 16, "four for each of four requests"
    assert new_engine(tiny("qwen3_5"), num_state_override=5).pools.states.num_slots == 5


def test_states_take_at_most_half_of_the_memory(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    """A state takes 7488 bytes, a page of one token 256; 40000 bytes are to be had."""
    monkeypatch.setattr("minisgl.engine.engine.free_memory", lambda device: 80000)
    engine = new_engine(tiny("qwen3_5"))
    assert engine.pools.states.num_slots == 20000 // 7488 == 2
    assert engine.num_pages == (40000 - 2 * 7488) // 256 == 97


def test_too_little_memory_for_a_state_is_an_error(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("minisgl.engine.engine.free_memory", lambda device: 20000)
    with pytest.raises(DeviceError, match="a state takes 7488 bytes, and 5000 are"):
        new_engine(tiny("qwen3_5"))


def test_more_requests_than_states_is_an_error(tiny: Tiny):
    driver = Driver(new_engine(tiny("qwen3_5"), num_state_override=1))
    reqs = [driver.start([1, 2, 3], 2) for _ in range(2)]
    with pytest.raises(PoolError, match="all 1 states are in use"):
        driver.prefill(*reqs)


def test_the_number_of_states_must_be_positive(tiny: Tiny):
    with pytest.raises(EngineConfigError, match="num_state_override is 0"):
        new_engine(tiny("qwen3_5"), num_state_override=0)
