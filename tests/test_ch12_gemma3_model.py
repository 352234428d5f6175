"""Chapter 12: Gemma 3, and the pools in which sliding layers keep only their window."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hybrid_driver import Driver
from tiny_models import build_tiny, hf_greedy, hf_logits, load_hf, random_prompt
from tokenizers import Tokenizer

from minisgl.attention.sliding_window import SlidingWindowBackend, window_mask
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.engine import pools
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.engine.generate import generate_one
from minisgl.errors import (
    DeviceError,
    EngineConfigError,
    IntegrityError,
    ModelError,
    PoolError,
)
from minisgl.kvcache.page_allocator import num_pages_for, slots_of_pages
from minisgl.kvcache.swa_mapping import NO_PAGE, SWAMapping, left_window_len
from minisgl.kvcache.swa_pool import SWAKVPool, layer_places
from minisgl.layers.centered_norm import CenteredRMSNorm
from minisgl.models.config import ModelConfig
from minisgl.models.registry import load_model

Tiny = Callable[[str], Path]
CPU = torch.device("cpu")
WINDOW = 8  # of the tiny model
PROMPT_LENS = [1, 7, 8, 9, 16, 17, 64]
NEW_TOKENS = 20
SLIDING, FULL = "sliding_attention", "full_attention"


def new_engine(model_dir: Path, **settings: Any) -> Engine:
    small = dict(
        device="cpu", dtype=torch.float32, max_running_req=4, max_seq_len_override=128
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
                models[device] = load_hf(tiny("gemma3"), device)
            prompt = random_prompt(length, seed=length)
            known[length, device] = hf_greedy(models[device], prompt, NEW_TOKENS)
        return known[length, device]

    return lookup


# --- the plain form: no pools, every score computed, the window masked ----------------


def dense_window_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None
) -> torch.Tensor:
    """q [n, heads, dim] are the last n of the m tokens of k, v [m, kv_heads, dim]."""
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    k = k.repeat_interleave(heads // kv_heads, dim=1)
    v = v.repeat_interleave(heads // kv_heads, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", q, k) / dim**0.5
    for row in range(n):
        position = m - n + row
        scores[:, row, position + 1 :] = -torch.inf
        if window is not None:
            scores[:, row, : max(position - window + 1, 0)] = -torch.inf
    return torch.einsum("hnm,mhd->nhd", scores.softmax(dim=-1), v).contiguous()


class DenseWindow:
    """A backend for one request whose tokens are all in the batch."""

    def __init__(self, layer_types: list[str], window: int) -> None:
        self.windows = [window if kind == SLIDING else None for kind in layer_types]

    def forward(self, q, k, v, layer_id, batch):
        return dense_window_attention(q, k, v, self.windows[layer_id])


def load(model_dir: Path, device: str = "cpu", dtype: torch.dtype = torch.float32):
    return load_model(model_dir, dtype, torch.device(device))


@torch.inference_mode()
def logits_of(model: Any, prompt: list[int], window: int = WINDOW) -> torch.Tensor:
    device = model.embedding.device
    params = SamplingParams()
    req = Req(array("i", prompt), 0, 0, 1, uid=0, sampling_params=params)
    batch = Batch([req], "prefill")
    batch.input_ids = torch.tensor(prompt, device=device)
    batch.positions = torch.arange(len(prompt), device=device)
    ctx = Context()
    ctx.attn_backend = DenseWindow(model.config.layer_types, window)
    with ctx.forward_batch(batch):
        return model.forward(batch)


def max_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


# --- the model ------------------------------------------------------------------------


def test_logits_equal_those_of_hugging_face(tiny: Tiny, device: str):
    prompt = random_prompt(100, seed=1)
    ours = logits_of(load(tiny("gemma3"), device), prompt)
    theirs = hf_logits(load_hf(tiny("gemma3"), device), prompt)
    assert theirs.std() > 1, "the comparison needs logits that differ"
    assert max_difference(ours, theirs) < 1e-4


def test_hugging_face_lets_a_query_see_itself_and_the_window_less_one_before(
    tmp_path: Path,
):
    """A single layer, so that nothing reaches further by way of another token."""
    path = build_tiny("gemma3", tmp_path, num_hidden_layers=1, layer_types=[SLIDING])
    model = load_hf(path)
    prompt = random_prompt(30, seed=3)
    before = hf_logits(model, prompt)
    changed = list(prompt)
    changed[10] = (prompt[10] + 1) % 151
    differs = (hf_logits(model, changed) - before).abs().amax(dim=1) > 1e-4
    assert differs.nonzero().flatten().tolist() == list(range(10, 10 + WINDOW))


def test_window_mask_shows_each_query_itself_and_the_keys_before():
    mask = window_mask(first=5, end=8, oldest=3, window=3, device=CPU)
    assert mask.int().tolist() == [
        [1, 1, 1, 0, 0],  # position 5 sees 3, 4, 5
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]


def shift_window(model: Any) -> None:
    model.shown_window = WINDOW + 1


def swap_bases(model: Any) -> None:
    model.rotary = {SLIDING: model.rotary[FULL], FULL: model.rotary[SLIDING]}


def drop_embedding_scale(model: Any) -> None:
    model.embedding_scale = 1.0


def drop_query_scale(model: Any) -> None:
    for layer in model.layers:
        layer.attention.q_norm.weight *= (24 / 16) ** 0.5


def uncenter(*path: str) -> Callable[[Any], None]:
    """As if the norms multiplied by w and not by 1 + w."""

    def change(model: Any) -> None:
        for owner in model.layers if path[0] != "norm" else [model]:
            for name in path:
                owner = getattr(owner, name)
            owner.weight = owner.weight - 1

    return change


def use_silu(model: Any) -> None:
    for layer in model.layers:
        mlp = layer.mlp
        mlp.forward = super(type(mlp), mlp).forward


SPECIALITIES: dict[str, Callable[[Any], None]] = {
    "the window, to the token": shift_window,
    "the base of each kind of layer": swap_bases,
    "the scale of the embeddings": drop_embedding_scale,
    "query_pre_attn_scalar": drop_query_scale,
    "the norm of the queries": uncenter("attention", "q_norm"),
    "the norm of the keys": uncenter("attention", "k_norm"),
    "the norm before attention": uncenter("pre_attention_norm"),
    "the norm after attention": uncenter("post_attention_norm"),
    "the norm before the MLP": uncenter("pre_mlp_norm"),
    "the norm after the MLP": uncenter("post_mlp_norm"),
    "the final norm": uncenter("norm"),
    "gelu in place of silu": use_silu,
}


@pytest.mark.parametrize("what", SPECIALITIES)
def test_the_tiny_model_notices_when_a_speciality_is_dropped(what: str, tiny: Tiny):
    prompt = random_prompt(100, seed=1)
    model = load(tiny("gemma3"))
    right = logits_of(model, prompt)
    model.shown_window = WINDOW
    SPECIALITIES[what](model)
    wrong = logits_of(model, prompt, model.shown_window)
    assert max_difference(wrong, right) > 0.05


def test_the_scale_of_the_embeddings_is_rounded_to_the_dtype_of_the_weights(tiny: Tiny):
    assert load(tiny("gemma3")).embedding_scale == pytest.approx(32**0.5, abs=1e-6)
    assert load(tiny("gemma3"), dtype=torch.bfloat16).embedding_scale == 5.65625


def test_the_norm_keeps_one_plus_w_in_float32():
    weight = torch.tensor([2.0**-10, 0.0], dtype=torch.bfloat16)
    norm = CenteredRMSNorm(weight, eps=0.0)
    assert norm.weight.tolist() == [1 + 2.0**-10, 1.0]
    out = norm.forward(torch.tensor([[3.0, -3.0]], dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16 and out.tolist() == [[1.0, -1.0]]


def test_two_norms_are_the_same_but_for_the_scale():
    weight, x = torch.randn(6), torch.randn(2, 6)
    plain = CenteredRMSNorm(weight, 1e-6).forward(x)
    torch.testing.assert_close(
        CenteredRMSNorm(weight, 1e-6, scale=0.5).forward(x), plain / 2
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(final_logit_softcapping=30.0), "final_logit_softcapping is 30.0"),
        (dict(attn_logit_softcapping=50.0), "attn_logit_softcapping is 50.0"),
        (dict(use_bidirectional_attention=True), "use_bidirectional_attention is True"),
        (dict(hidden_activation="silu"), "it must be 'gelu_pytorch_tanh'"),
        (dict(sliding_window=None), "sliding_window is None"),
        (dict(layer_types=[SLIDING] * 4), r"the layers are \['sliding_attention'\]"),
        (
            dict(layer_types=[FULL, SLIDING, "chunked_attention", FULL]),
            "a layer is of the kind 'chunked_attention'",
        ),
    ],
)
def test_a_gemma_that_is_not_served_is_refused(
    given: dict[str, Any], message: str, tmp_path: Path
):
    path = build_tiny("gemma3", tmp_path)
    text = (path / "config.json").read_text()
    (path / "config.json").write_text(json.dumps({**json.loads(text), **given}))
    with pytest.raises(ModelError, match=message):
        new_engine(path)


# --- token for token ------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_greedy_tokens_equal_those_of_generate(
    page_size: int, device: str, tiny: Tiny, expected: Any
):
    """Prompts within the window and far beyond; answers that cross its border."""
    engine = new_engine(tiny("gemma3"), page_size=page_size, device=device)
    for length in PROMPT_LENS:
        params = SamplingParams(max_tokens=NEW_TOKENS)
        ours = generate_one(engine, random_prompt(length, seed=length), params)
        assert ours == expected(length, device), f"prompt of {length} tokens"


@pytest.mark.parametrize("chunk", [1, 3, 8, 9, 33])
@pytest.mark.parametrize("page_size", [1, 4])
def test_a_prompt_in_slices_gives_the_same_tokens(
    page_size: int, chunk: int, tiny: Tiny, expected: Any
):
    driver = Driver(new_engine(tiny("gemma3"), page_size=page_size))
    for length in (9, 64):
        prompt = random_prompt(length, seed=length)
        assert driver.answer(prompt, NEW_TOKENS, chunk) == expected(length)


def run_together(driver: Driver, lengths: list[int]) -> dict[int, list[int]]:
    """Prompts computed in one batch, answers too, and the longest one joins late."""
    *first, late = lengths
    reqs = {n: driver.start(random_prompt(n, seed=n), NEW_TOKENS) for n in first}
    driver.prefill(*reqs.values(), chunk=16)
    for _ in range(5):
        driver.decode(*reqs.values())
    reqs[late] = driver.start(random_prompt(late, seed=late), NEW_TOKENS)
    driver.prefill(reqs[late])
    while running := [req for req in reqs.values() if req.can_decode]:
        driver.decode(*running)
    return {n: driver.finish(req) for n, req in reqs.items()}


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_requests_of_all_lengths_in_a_batch_get_the_same_tokens(
    page_size: int, device: str, tiny: Tiny, expected: Any
):
    driver = Driver(new_engine(tiny("gemma3"), page_size=page_size, device=device))
    answers = run_together(driver, [1, 8, 64, 17])
    assert answers == {n: expected(n, device) for n in (1, 8, 64, 17)}
    driver.engine.pools.swa.check_integrity()
    assert driver.engine.pools.swa.num_free == driver.engine.pools.num_swa_pages


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_garbage_in_the_window_slots_that_are_free_changes_no_token(
    page_size: int, tiny: Tiny, expected: Any
):
    """What left the window is overwritten at once, as a new owner would."""
    engine = new_engine(tiny("gemma3"), page_size=page_size)
    pool = engine.kv_cache

    def spoil() -> None:
        free = slots_of_pages(pool.mapping.allocator.free_pages, page_size)
        for index in range(3):
            pool.window.k_cache(index)[torch.tensor(free)] = 1e4
            pool.window.v_cache(index)[torch.tensor(free)] = 1e4

    driver = Driver(engine, between_steps=spoil)
    answers = run_together(driver, [1, 8, 64, 17])
    assert answers == {n: expected(n) for n in (1, 8, 64, 17)}


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_long_request_holds_no_more_window_pages_than_its_window_touches(
    page_size: int, tiny: Tiny
):
    engine = new_engine(tiny("gemma3"), page_size=page_size)
    swa, held = engine.pools.swa, []
    driver = Driver(engine, lambda: held.append(swa.allocator.num_pages - swa.num_free))
    req = driver.start(random_prompt(60, seed=0), 60)
    driver.prefill(req, chunk=4)
    while req.can_decode:
        driver.decode(req)
    assert max(held) <= num_pages_for(WINDOW - 1, page_size) + 1
    assert num_pages_for(req.cached_len, page_size) > max(held)


def test_a_window_pool_far_smaller_than_the_request_is_enough(
    tiny: Tiny, expected: Any
):
    engine = new_engine(tiny("gemma3"), page_size=4, num_swa_page_override=4)
    assert Driver(engine).answer(random_prompt(64, 64), NEW_TOKENS, 4) == expected(64)


def test_a_window_pool_that_is_full_refuses_and_gives_nothing(tiny: Tiny):
    engine = new_engine(tiny("gemma3"), page_size=4, num_swa_page_override=4)
    with pytest.raises(PoolError, match="5 pages were asked for; 4 of 4 are free"):
        generate_one(engine, random_prompt(17, seed=0), SamplingParams(max_tokens=1))
    assert engine.pools.swa.num_free == 4


# --- the real model -------------------------------------------------------------------


@pytest.fixture(scope="module")
def gemma3_270m() -> Path:
    root = os.environ.get(
        "MINISGL_MODELS", Path(__file__).resolve().parents[1] / "models"
    )
    path = Path(root) / "gemma-3-270m"
    if not (path / "config.json").is_file():
        pytest.skip(f"{path} is missing; tools/models.py get gemma3 would fetch it")
    return path


@pytest.mark.model
def test_greedy_tokens_of_gemma_3_270m_equal_those_of_generate(gemma3_270m: Path):
    """One prompt within the window of 512 tokens, one that is longer."""
    tokenizer = Tokenizer.from_file(str(gemma3_270m / "tokenizer.json"))
    short = tokenizer.encode("The capital of France is").ids
    counted = ", ".join(f"sheep {n} jumps over the fence" for n in range(1, 62))
    long = tokenizer.encode(f"I cannot sleep and count: {counted}").ids
    assert len(short) < 512 < len(long)
    model = load_hf(gemma3_270m)
    theirs = [hf_greedy(model, prompt, 8) for prompt in (short, long)]
    del model
    engine = new_engine(gemma3_270m, page_size=16, max_seq_len_override=1024)
    driver = Driver(engine)
    assert [driver.answer(prompt, 8, 200) for prompt in (short, long)] == theirs
    assert "France" in tokenizer.decode(theirs[0])


# --- the backend beside the plain form ------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("window", [1, 3, 8, 300])
def test_both_kinds_of_layers_equal_dense_attention(
    window: int, page_size: int, device: str
):
    """Prefill behind prefixes of several lengths, then a decode step; block borders of
    256 queries inside."""
    lens = [(0, 5), (7, 20), (40, 341), (0, 300)]  # (cached_len, device_len)
    world = BackendWorld(window, page_size, device)
    for cached_len, device_len in lens:
        world.add(cached_len, device_len)
    world.check("prefill")
    for req in world.reqs:
        req.complete_one()
    world.check("decode")


class BackendWorld:
    """Requests with random keys and values of their own in shuffled pages."""

    heads, kv_heads, dim = 4, 2, 8
    layer_types = (SLIDING, FULL, SLIDING)

    def __init__(self, window: int, page_size: int, device: str) -> None:
        self.device = torch.device(device)
        self.window, self.page_size = window, page_size
        self.pool = SWAKVPool(
            layer_types=self.layer_types,
            num_kv_heads=self.kv_heads,
            head_dim=self.dim,
            num_pages=800,
            num_swa_pages=700,
            page_size=page_size,
            dtype=torch.float32,
            device=self.device,
        )
        self.page_table = torch.zeros(4, 400, dtype=torch.int32, device=self.device)
        self.backend = SlidingWindowBackend(
            self.pool, self.page_table, torch.float32, window
        )
        generator = torch.Generator().manual_seed(0)
        self.pages = torch.randperm(800, generator=generator).tolist()
        self.random = lambda *shape: torch.randn(*shape, generator=generator)
        self.reqs: list[Req] = []
        self.known: list[list[tuple[torch.Tensor, torch.Tensor]]] = []  # by layer

    def add(self, cached_len: int, device_len: int) -> None:
        """A request whose window before `cached_len` is stored already."""
        row = len(self.reqs)
        req = Req(
            array("i", [0] * device_len),
            row,
            cached_len,
            8,
            uid=row,
            sampling_params=SamplingParams(),
        )
        count = num_pages_for(device_len + 1, self.page_size)
        pages, self.pages = self.pages[:count], self.pages[count:]
        slots = slots_of_pages(pages, self.page_size)
        self.page_table[row, : len(slots)] = torch.tensor(slots)
        self.pool.mapping.allocate(slots)
        self.pool.sync()
        self.reqs.append(req)
        self.known.append([])
        for layer, kind in enumerate(self.layer_types):
            k, v = (self.random(cached_len, self.kv_heads, self.dim) for _ in "kv")
            self.known[row].append((k, v))
            place = self.pool.places[layer]
            out_loc = torch.tensor(slots[:cached_len], device=self.device).long()
            if kind == SLIDING:
                out_loc = self.pool.full_to_swa[out_loc]
            pool = self.pool.window if kind == SLIDING else self.pool.full
            pool.store_kv(k.to(self.device), v.to(self.device), out_loc, place.index)
        gone = left_window_len(cached_len, self.window, self.page_size)
        self.pool.mapping.free(slots[:gone])

    def check(self, phase: str) -> None:
        batch = Batch(self.reqs, phase)
        lens = [req.extend_len for req in self.reqs]
        batch.out_loc = torch.cat(
            [
                self.page_table[req.table_idx, req.cached_len : req.device_len]
                for req in self.reqs
            ]
        ).long()
        self.backend.prepare_metadata(batch)
        for layer, kind in enumerate(self.layer_types):
            q = self.random(sum(lens), self.heads, self.dim)
            k, v = (self.random(sum(lens), self.kv_heads, self.dim) for _ in "kv")
            args = (x.to(self.device) for x in (q, k, v))
            out = self.backend.forward(*args, layer, batch).cpu()
            assert out.is_contiguous()
            parts = zip(q.split(lens), k.split(lens), v.split(lens), strict=True)
            wanted = []
            for row, (q_part, k_part, v_part) in enumerate(parts):
                old_k, old_v = self.known[row][layer]
                whole = torch.cat([old_k, k_part]), torch.cat([old_v, v_part])
                self.known[row][layer] = whole
                window = self.window if kind == SLIDING else None
                wanted.append(dense_window_attention(q_part, *whole, window))
            torch.testing.assert_close(out, torch.cat(wanted), atol=1e-5, rtol=1e-4)


def test_a_decode_step_gathers_only_the_window():
    world = BackendWorld(window=8, page_size=4, device="cpu")
    for device_len in (3, 300):
        world.add(device_len - 1, device_len)
    batch = Batch(world.reqs, "decode")
    batch.out_loc = torch.tensor(
        [world.page_table[req.table_idx, req.cached_len] for req in world.reqs]
    )
    world.backend.prepare_metadata(batch)
    assert len(batch.attn_metadata.sliding.reads.slots) == 2 * 8
    assert len(batch.attn_metadata.full.reads.slots) == 2 * 300


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_reading_a_window_slot_that_was_freed_is_an_error(phase: str):
    world = BackendWorld(window=8, page_size=4, device="cpu")
    world.add(20, 21)
    world.pool.mapping.free(world.page_table[0, 16:20].tolist())
    with pytest.raises(IndexError):
        world.check(phase)


def test_writing_a_token_without_a_window_slot_is_an_error():
    world = BackendWorld(window=8, page_size=1, device="cpu")
    world.add(20, 21)
    world.pool.mapping.free(world.page_table[0, 20:21].tolist())
    with pytest.raises(IndexError):
        world.check("decode")


# --- pool and mapping -----------------------------------------------------------------


def test_layers_are_numbered_among_their_kind():
    places = layer_places([SLIDING, SLIDING, FULL, SLIDING, FULL])
    assert places == [(True, 0), (True, 1), (False, 0), (True, 2), (False, 1)]


def test_a_token_stands_at_the_same_place_in_both_pages():
    pool = SWAKVPool(
        layer_types=[FULL, SLIDING],
        num_kv_heads=1,
        head_dim=2,
        num_pages=4,
        num_swa_pages=3,
        page_size=2,
        dtype=torch.float32,
        device=CPU,
    )
    pool.mapping.allocate([4, 5, 0, 1])  # Full pages 2 and 0
    assert pool.full_to_swa.tolist() == [-1] * 8, "not before the next sync"
    pool.sync()
    assert pool.full_to_swa.tolist() == [2, 3, -1, -1, 0, 1, -1, -1]
    pool.mapping.free([4, 5, 6, 7])
    pool.mapping.move([0, 1], [2, 3])
    pool.sync()
    assert pool.full_to_swa.tolist() == [-1, -1, 2, 3, -1, -1, -1, -1]
    assert len(pool.full.k_cache(0)) == 8 and len(pool.window.k_cache(0)) == 6


def test_window_pages_are_counted_and_reused():
    mapping = SWAMapping(num_pages=10, num_swa_pages=3, page_size=2)
    mapping.allocate([8, 9, 2, 3])
    assert mapping.swa_pages([4, 1, 0]) == [0, 1, NO_PAGE]
    assert (mapping.num_free, mapping.take_changes()) == (1, [1, 4])
    mapping.free([8, 9, 6, 7])  # the second has none, which is no fault
    assert (mapping.num_free, mapping.take_changes()) == (2, [4])
    mapping.allocate([0, 1, 4, 5])
    assert mapping.num_free == 0
    mapping.check_integrity()
    mapping.reset()
    assert (mapping.num_free, mapping.swa_pages([0, 1, 2])) == (3, [NO_PAGE] * 3)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([0, 1, 2], "3 pages were asked for; 2 of 3 are free"),
        ([0, 7], "Full page 7 has a window page already"),
    ],
)
def test_a_refused_allocation_changes_nothing(slots: list[int], message: str):
    mapping = SWAMapping(num_pages=10, num_swa_pages=3, page_size=1)
    mapping.allocate([7])
    mapping.take_changes()
    with pytest.raises(PoolError, match=message):
        mapping.allocate(slots)
    assert (mapping.num_free, mapping.take_changes()) == (2, [])
    mapping.check_integrity()


def test_a_window_page_freed_twice_in_one_call_is_an_error():
    mapping = SWAMapping(num_pages=4, num_swa_pages=2, page_size=1)
    mapping.allocate([3])
    with pytest.raises(PoolError, match="freed twice"):
        mapping.free([3, 3])
    assert mapping.swa_pages([3]) == [0] and mapping.num_free == 1


def test_a_window_page_moves_to_the_page_that_stays():
    mapping = SWAMapping(num_pages=6, num_swa_pages=2, page_size=2)
    mapping.allocate([0, 1])
    mapping.move([0, 1], [8, 9])
    assert mapping.swa_pages([0, 4]) == [NO_PAGE, 0] and mapping.num_free == 1
    for source, target in (([0, 1], [4, 5]), ([8, 9], [8, 9])):
        with pytest.raises(AssertionError):  # nothing to move; nowhere to put it
            mapping.move(source, target)
    mapping.check_integrity()


def test_integrity_names_a_window_page_with_two_owners_and_one_with_none():
    mapping = SWAMapping(num_pages=4, num_swa_pages=2, page_size=1)
    mapping.allocate([3])
    mapping._pair(1, 0)
    with pytest.raises(IntegrityError, match="window page 0 is that of Full page 3"):
        mapping.check_integrity()
    mapping._pair(1, NO_PAGE)
    mapping._pair(3, NO_PAGE)
    with pytest.raises(IntegrityError, match="window page 0 is neither free nor"):
        mapping.check_integrity()


@pytest.mark.parametrize(
    ("num_tokens", "page_size", "left"),
    [(0, 1, 0), (7, 1, 0), (8, 1, 1), (9, 1, 2), (10, 4, 0), (11, 4, 4), (30, 16, 16)],
)
def test_what_left_the_window(num_tokens: int, page_size: int, left: int):
    """Window 8: with 8 tokens computed, the next stands at 8 and sees 1 to 8."""
    assert left_window_len(num_tokens, 8, page_size) == left


# --- memory ---------------------------------------------------------------------------


def test_the_same_memory_holds_more_tokens_with_a_window_pool(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    """Four layers of 256 bytes a token, three of them sliding, and half as many window
    pages as pages: 256 + 768 / 2 = 640 bytes in place of 1024."""
    monkeypatch.setattr("minisgl.engine.engine.free_memory", lambda device: 2 * 64000)
    engine = new_engine(tiny("gemma3"), max_seq_len_override=512)
    assert engine.pools.kv_bytes(4) == 1024
    assert (engine.pools.full_bytes, engine.pools.swa_bytes) == (256, 768)
    assert (engine.num_pages, engine.pools.num_swa_pages) == (100, 50)
    assert 64000 // 1024 == 62, "tokens that fit if every layer kept everything"


def test_the_window_pool_holds_at_least_a_window_and_room_to_go_on(tiny: Tiny):
    engine = new_engine(tiny("gemma3"), page_size=4, num_page_override=5)
    assert engine.pools.num_swa_pages == 4  # the window, and two more
    engine = new_engine(tiny("gemma3"), page_size=4, num_page_override=3)
    assert engine.pools.num_swa_pages == 3  # never more than pages


def test_too_little_memory_is_an_error(tiny: Tiny, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minisgl.engine.engine.free_memory", lambda device: 1000)
    with pytest.raises(DeviceError, match="640 bytes, and 500 are to be had"):
        new_engine(tiny("gemma3"))


def test_the_number_of_window_pages_must_be_positive(tiny: Tiny):
    with pytest.raises(EngineConfigError, match="num_swa_page_override is 0"):
        new_engine(tiny("gemma3"), num_swa_page_override=0)


def test_a_model_without_sliding_layers_has_no_window_pool(tiny: Tiny):
    engine = new_engine(tiny("qwen3"))
    assert engine.pools.swa is None and type(engine.pools) is pools.Pools
    assert ModelConfig.from_dir(tiny("llama")).layer_types == [FULL] * 3
