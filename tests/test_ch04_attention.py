"""Chapter 4: attention through the page table equals attention without a cache."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_models import hf_logits, load_hf, random_prompt
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from minisgl.attention.base import BaseAttnBackend
from minisgl.attention.dense import dense_attention
from minisgl.attention.torch_backend import QUERY_BLOCK, TorchBackend
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.page_allocator import num_pages_for, slots_of_pages
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.registry import load_model

PAGE_SIZES = [1, 4, 16]
GREEDY = SamplingParams()
FOREIGN = 1e30  # what every slot holds that no request of the batch owns


def new_req(row: int, cached: int, known: int, phase: str) -> Req:
    """A request that computes [cached, known); a prefill of it may be but a slice."""
    goes_on = 5 if phase == "prefill" and cached % 2 == 0 else 0
    tokens = array("i", [0] * (known + goes_on))
    req = Req(tokens, row, cached, 9, uid=row, sampling_params=GREEDY)
    if goes_on:
        req.limit_chunk(known - cached)
    return req


class World:
    """Requests with random q, k, v, whose pages are scattered over a pool.

    `cached_and_known` has (cached_len, device_len) of each request. The KV of cached
    tokens is in the pool already. All other slots, and the page table behind each
    request's tokens, lead to huge numbers that would show in any sum.
    """

    def __init__(
        self,
        cached_and_known: list[tuple[int, int]],
        page_size: int = 4,
        heads: tuple[int, int] = (4, 2),
        device: str = "cpu",
        num_layers: int = 1,
        phase: str = "prefill",
        dim: int = 8,
    ) -> None:
        rng, generator = random.Random(0), torch.Generator().manual_seed(0)
        self.device = torch.device(device)
        num_pages = [num_pages_for(known, page_size) for _, known in cached_and_known]
        pool_pages = 2 * sum(num_pages) + 3
        self.pool = MHAKVPool(
            num_layers=num_layers,
            num_kv_heads=heads[1],
            head_dim=dim,
            num_pages=pool_pages,
            page_size=page_size,
            dtype=torch.float32,
            device=self.device,
        )
        for layer in range(num_layers):
            self.pool.k_cache(layer).fill_(FOREIGN)
            self.pool.v_cache(layer).fill_(FOREIGN)
        pages = rng.sample(range(pool_pages), pool_pages)
        row_len = max(num_pages) * page_size + page_size
        self.tables = ReqTable(len(num_pages) + 2, row_len, self.device)
        foreign = slots_of_pages(pages[sum(num_pages) :], page_size)
        self.reqs: list[Req] = []
        self.q: list[torch.Tensor] = []
        self.kv: list[list[torch.Tensor]] = []  # of each request, of each layer
        for (cached, known), count in zip(cached_and_known, num_pages, strict=True):
            row = len(num_pages) + 1 - len(self.reqs)  # not in the order of the batch
            mine, pages = pages[:count], pages[count:]
            slots = slots_of_pages(mine, page_size)
            self.tables.write_slots(row, 0, rng.choices(foreign, k=row_len))
            self.tables.write_slots(row, 0, slots[:known])
            self.reqs.append(new_req(row, cached, known, phase))

            def numbers(*shape: int) -> torch.Tensor:
                return torch.randn(*shape, generator=generator).to(self.device)

            self.q.append(numbers(known, heads[0], dim))
            self.kv.append(
                [numbers(2, known, heads[1], dim) for _ in range(num_layers)]
            )
            where = torch.tensor(list(slots[:cached]), dtype=torch.int64)
            for layer, (k, v) in enumerate(self.kv[-1]):
                self.pool.store_kv(k[:cached], v[:cached], where.to(self.device), layer)
        self.batch = Batch(self.reqs, phase)
        self.tables.fill_batch(self.batch)
        self.backend = TorchBackend(self.pool, self.tables.page_table, torch.float32)

    def new(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The new tokens of all requests behind one another, as a model has them."""
        pairs = zip(parts, self.reqs, strict=True)
        return torch.cat([part[req.cached_len :] for part, req in pairs])

    def inputs(self, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        k = self.new([kv[layer][0] for kv in self.kv])
        v = self.new([kv[layer][1] for kv in self.kv])
        return self.new(self.q), k, v

    def forward(self, layer: int = 0) -> torch.Tensor:
        return self.backend.forward(*self.inputs(layer), layer, self.batch)

    def expected(self, layer: int = 0) -> torch.Tensor:
        """The same without pages, request by request."""
        return self.new(
            [
                dense_attention(q, *kv[layer])
                for q, kv in zip(self.q, self.kv, strict=True)
            ]
        )

    def check(self) -> None:
        self.backend.prepare_metadata(self.batch)
        for layer in range(len(self.kv[0])):
            ours, expected = self.forward(layer), self.expected(layer)
            assert ours.shape == expected.shape and ours.is_contiguous()
            assert (ours - expected).abs().max().item() < 1e-5


# --- equal to dense attention ---------------------------------------------------------


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_prefill_of_ragged_prompts_equals_dense_attention(page_size: int, device: str):
    World([(0, 5), (0, 33), (0, 1), (0, 16)], page_size, device=device).check()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_prefix_hit_equals_dense_attention(page_size: int, device: str):
    World([(16, 33), (32, 33), (4, 40)], page_size, device=device).check()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_mixed_batch_equals_dense_attention(page_size: int, device: str):
    """A whole prompt, a hit, a slice in the middle, and requests that decode."""
    mixed = [(0, 21), (16, 19), (7, 30), (40, 41), (0, 1), (2, 3)]
    World(mixed, page_size, device=device).check()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(
    "lens",
    [[1], [33], [17, 17, 17], [5, 33, 1, 16, 2], [64, 1]],
    ids=str,
)
def test_decode_equals_dense_attention(lens: list[int], page_size: int, device: str):
    requests = [(n - 1, n) for n in lens]
    World(requests, page_size, phase="decode", device=device).check()


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (9, 3), (4, 1)], ids=str)
def test_query_heads_share_key_heads_in_groups(heads: tuple[int, int], device: str):
    World([(0, 9), (4, 7)], heads=heads, device=device).check()
    decode = [(8, 9), (3, 4)]
    World(decode, heads=heads, phase="decode", device=device).check()


@pytest.mark.parametrize("num_new", [-1, 0, 1, QUERY_BLOCK, QUERY_BLOCK + 1])
@pytest.mark.parametrize("cached", [0, 20])
def test_queries_that_cross_a_block_equal_dense_attention(num_new: int, cached: int):
    known = cached + QUERY_BLOCK + num_new
    World([(cached, known), (0, 3)]).check()


def test_each_layer_attends_to_its_own_keys():
    World([(0, 9), (4, 7)], num_layers=3).check()
    World([(8, 9), (3, 4)], num_layers=3, phase="decode").check()


def test_new_keys_and_values_are_in_the_pool_afterwards():
    world = World([(0, 9), (4, 7)], num_layers=2)
    world.check()
    for req, layers in zip(world.reqs, world.kv, strict=True):
        slots = world.tables.page_table[req.table_idx, : req.device_len]
        for layer, (k, v) in enumerate(layers):
            assert torch.equal(world.pool.k_cache(layer)[slots], k)
            assert torch.equal(world.pool.v_cache(layer)[slots], v)


def test_a_request_reads_a_prefix_that_another_request_wrote():
    """Row 1 points at the pages of row 0; only the last two tokens are its own."""
    world = World([(0, 10), (8, 10)], page_size=4)
    first, second = world.reqs
    shared = list(world.tables.read_slots(first.table_idx, 0, 8))
    world.tables.write_slots(second.table_idx, 0, shared)
    for old, new in zip(world.kv[0], world.kv[1], strict=True):
        new[:, :8] = old[:, :8]
    world.check()


def test_what_a_request_computes_does_not_depend_on_its_company():
    lens = [(0, 21), (16, 19), (40, 41)]
    together = World(lens)
    together.backend.prepare_metadata(together.batch)
    first = together.forward()[:21]
    alone = World(lens)
    alone.batch = Batch(alone.reqs[:1], "prefill")
    alone.reqs, alone.q, alone.kv = alone.reqs[:1], alone.q[:1], alone.kv[:1]
    alone.tables.fill_batch(alone.batch)
    alone.backend.prepare_metadata(alone.batch)
    assert torch.equal(alone.forward(), first)


def test_the_backend_is_one_of_several_that_keep_the_same_promise():
    assert issubclass(TorchBackend, BaseAttnBackend)
    with pytest.raises(TypeError, match="abstract"):
        BaseAttnBackend()


# --- what it costs --------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Notes how many numbers fit in the largest memory that an operation returns.

    Memory that was there before, that of the `known` tensors, does not count.
    """

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.numel = 0
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.known:
                    size = storage.nbytes() // tensor.element_size()
                    self.numel = max(self.numel, size)
        return out


def largest_tensor(world: World, compute: Callable[[], object]) -> int:
    known = [world.pool.k_cache(0), world.pool.v_cache(0), world.tables.page_table]
    with LargestTensor(known) as largest:
        compute()
    return largest.numel


def attend(world: World) -> None:
    world.backend.prepare_metadata(world.batch)
    world.forward()


LONG = 1500


def test_a_prefill_never_needs_the_square_of_its_length():
    world = World([(0, LONG)], heads=(2, 1), dim=4)
    # heads * length² is what dense attention takes; blocks take heads * block * length
    assert largest_tensor(world, lambda: world.expected()) >= 2 * LONG**2
    assert largest_tensor(world, lambda: attend(world)) <= 2 * QUERY_BLOCK * LONG


def test_one_long_prompt_does_not_pad_the_short_ones():
    alone = World([(0, LONG)], heads=(2, 1), dim=4)
    company = World([(0, LONG)] + [(0, 2)] * 15, heads=(2, 1), dim=4)
    largest = largest_tensor(alone, lambda: attend(alone))
    assert largest_tensor(company, lambda: attend(company)) <= largest + 16 * 2 * 4 * 8


def test_a_decode_batch_needs_no_more_than_its_padded_keys():
    world = World(
        [(LONG - 1, LONG)] + [(3, 4)] * 7, heads=(4, 2), dim=4, phase="decode"
    )
    assert largest_tensor(world, lambda: attend(world)) <= 8 * LONG * 2 * 4


class CallCounter(TorchFunctionMode):
    """Counts all calls of torch functions, and those of attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.attention = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls += 1
        self.attention += func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def calls_of_decode(batch_size: int) -> CallCounter:
    lens = [3 + 2 * i for i in range(batch_size)]
    world = World([(n - 1, n) for n in lens], phase="decode")
    inputs = world.inputs()
    world.backend.prepare_metadata(world.batch)
    with CallCounter() as counter:
        world.backend.forward(*inputs, 0, world.batch)
    return counter


def test_decode_is_one_call_of_attention_whatever_the_batch():
    one, few, many = (calls_of_decode(size) for size in (1, 2, 32))
    assert one.attention == few.attention == many.attention == 1
    assert few.calls == many.calls


# --- a whole model through the pool ---------------------------------------------------


@torch.inference_mode()
def paged_logits(
    model_dir: Path, prompt: list[int], slices: list[int], page_size: int
) -> torch.Tensor:
    """Logits [len(slices), vocab] behind each slice; one token is decoded."""
    device = torch.device("cpu")
    model = load_model(model_dir, torch.float32, device)
    config, num_pages = model.config, num_pages_for(len(prompt), page_size)
    pool = MHAKVPool(
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_pages=num_pages,
        page_size=page_size,
        dtype=torch.float32,
        device=device,
    )
    tables = ReqTable(1, num_pages * page_size, device)
    pages = random.Random(0).sample(range(num_pages), num_pages)
    tables.write_slots(0, 0, slots_of_pages(pages, page_size))
    tables.write_tokens(0, 0, prompt)
    ctx = Context(page_size=page_size)
    ctx.attn_backend = TorchBackend(pool, tables.page_table, torch.float32)
    logits, start = [], 0
    for size in slices:
        known = array("i", prompt[: start + size])
        req = Req(known, 0, start, 1, uid=0, sampling_params=GREEDY)
        batch = Batch([req], "decode" if size == 1 else "prefill")
        tables.fill_batch(batch)
        ctx.attn_backend.prepare_metadata(batch)
        with ctx.forward_batch(batch):
            logits.append(model.forward(batch)[-1])
        start += size
    assert start == len(prompt)
    return torch.stack(logits)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(
    "slices",
    [[50], [17, 33], [4, 1, 16, 28, 1], [46, 1, 1, 1, 1], [1] * 50],
    ids=["whole", "two slices", "ragged", "decode", "token by token"],
)
def test_logits_do_not_depend_on_how_a_prompt_is_cut(
    slices: list[int], page_size: int, tiny: Callable[[str], Path]
):
    prompt = random_prompt(50, seed=4)
    ours = paged_logits(tiny("qwen3"), prompt, slices, page_size)
    ends = torch.tensor(slices).cumsum(0) - 1
    theirs = hf_logits(load_hf(tiny("qwen3")), prompt)[ends]
    assert (ours - theirs).abs().max().item() < 1e-4
