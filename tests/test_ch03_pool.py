"""Chapter 3: pages, the KV pool, and the tables through which it is read."""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from minisgl.core import Batch, Req, SamplingParams
from minisgl.errors import PoolError
from minisgl.kvcache.mha_pool import MHAKVPool, kv_bytes_per_token, pages_that_fit
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    pages_of_slots,
    slots_of_pages,
)
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.config import ModelConfig
from minisgl.torch_free import MODULES

CPU = torch.device("cpu")


# --- the page allocator ---------------------------------------------------------------


def test_a_new_pool_hands_out_its_pages_from_zero_up():
    allocator = PageAllocator(4)
    assert allocator.free_pages == [0, 1, 2, 3]
    assert allocator.allocate(3) == [0, 1, 2]
    assert (allocator.num_free, allocator.free_pages) == (1, [3])


def test_a_page_that_was_freed_is_handed_out_again_first():
    allocator = PageAllocator(4)
    allocator.allocate(4)
    allocator.free([2, 0])
    assert allocator.free_pages == [2, 0]
    assert allocator.allocate(1) == [2]


def test_allocation_is_all_or_nothing():
    allocator = PageAllocator(3)
    allocator.allocate(1)
    with pytest.raises(PoolError, match="3 pages were asked for; 2 of 3 are free"):
        allocator.allocate(3)
    assert allocator.free_pages == [1, 2]
    assert allocator.allocate(2) == [1, 2]


def test_the_last_page_can_be_taken_and_then_none():
    allocator = PageAllocator(1)
    assert allocator.allocate(1) == [0]
    with pytest.raises(PoolError, match="0 of 1 are free"):
        allocator.allocate(1)


def test_asking_for_no_page_gives_none_and_for_fewer_is_refused():
    allocator = PageAllocator(2)
    assert allocator.allocate(0) == []
    with pytest.raises(PoolError, match="-1"):
        allocator.allocate(-1)
    assert allocator.num_free == 2


@pytest.mark.parametrize("num_pages", [0, -3])
def test_a_pool_has_at_least_one_page(num_pages: int):
    with pytest.raises(PoolError, match=str(num_pages)):
        PageAllocator(num_pages)


# pages 0, 1, 2 are in use; 3 and 4 are free
REFUSED: dict[str, tuple[list[Any], str]] = {
    "a free page": ([3], "page 3 cannot be freed: it is free already"),
    "a free page after a good one": ([1, 4], "page 4 cannot be freed"),
    "a page twice": ([2, 0, 2], "page 2 is freed twice in one call"),
    "a page behind the pool": ([0, 5], "page 5 cannot be freed: .* pages 0 to 4"),
    "a page before the pool": ([-1], "page -1 cannot be freed"),
    "a float that equals a page": ([0, 1.0], r"page 1\.0 cannot be freed"),
    "a boolean that equals a page": ([True], "page True cannot be freed"),
    "a word": (["0"], "page '0' cannot be freed"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_page_that_cannot_be_freed_is_named_and_nothing_changes(what: str):
    pages, message = REFUSED[what]
    allocator = PageAllocator(5)
    assert allocator.allocate(3) == [0, 1, 2]
    with pytest.raises(PoolError, match=message):
        allocator.free(pages)
    assert allocator.free_pages == [3, 4]
    allocator.free([0, 1, 2])
    assert sorted(allocator.free_pages) == [0, 1, 2, 3, 4]


def test_a_page_cannot_be_freed_twice_in_two_calls():
    allocator = PageAllocator(2)
    allocator.allocate(2)
    allocator.free([1])
    with pytest.raises(PoolError, match="page 1 cannot be freed: it is free already"):
        allocator.free([1])
    assert allocator.free_pages == [1]


def test_two_ranges_that_meet_inside_a_page_cannot_free_it_twice():
    """A request of 7 tokens on pages of 4: [4, 6) and [6, 7) are both on page 1."""
    allocator = PageAllocator(2)
    slots = slots_of_pages(allocator.allocate(2), 4)[:7]
    allocator.free([slots[4] // 4])
    with pytest.raises(PoolError, match="page 1 "):
        allocator.free([slots[6] // 4])
    assert allocator.free_pages == [1]


def test_pages_may_come_from_any_iterable_and_none_is_fine():
    allocator = PageAllocator(3)
    allocator.allocate(3)
    allocator.free(page for page in (0, 2))
    allocator.free([])
    assert allocator.free_pages == [0, 2]


def test_a_caller_that_changes_its_lists_does_not_change_the_pool():
    allocator = PageAllocator(4)
    pages = allocator.allocate(2)
    mine = list(pages)
    pages.append(3)
    allocator.free_pages.clear()
    allocator.free(mine)
    mine[0] = 99
    assert allocator.free_pages == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_every_page_is_free_or_in_use_after_any_calls(seed: int):
    rng, num_pages = random.Random(seed), 12
    allocator, free, in_use = PageAllocator(num_pages), set(range(num_pages)), []
    for _ in range(300):
        if rng.random() < 0.5:
            wanted = rng.randint(0, 6)
            if wanted > len(free):
                with pytest.raises(PoolError):
                    allocator.allocate(wanted)
            else:
                pages = allocator.allocate(wanted)
                assert len(set(pages)) == wanted and set(pages) <= free
                free -= set(pages)
                in_use += pages
        else:
            rng.shuffle(in_use)
            pages = in_use[: rng.randint(0, 6)]
            stray = rng.choice([None, None, *free, -1, num_pages])
            if stray is not None:
                with pytest.raises(PoolError, match=f"page {stray} cannot"):
                    allocator.free([*pages, stray])
            else:
                allocator.free(pages)
                free |= set(pages)
                in_use = in_use[len(pages) :]
        assert sorted(allocator.free_pages) == sorted(free)
        assert allocator.num_free + len(in_use) == num_pages


def test_the_allocator_needs_no_torch():
    assert "minisgl.kvcache.page_allocator" in MODULES


# --- page arithmetic ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_tokens", "page_size", "pages"),
    [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (63, 64, 1), (64, 64, 1), (65, 64, 2)],
)
def test_the_last_page_may_be_partly_empty(num_tokens: int, page_size: int, pages: int):
    assert num_pages_for(num_tokens, page_size) == pages


def test_a_token_needs_a_new_page_only_at_a_page_boundary():
    """What admission counts in: 63 -> 64 tokens takes no page of 64, 64 -> 65 one."""
    assert num_pages_for(64, 64) - num_pages_for(63, 64) == 0
    assert num_pages_for(65, 64) - num_pages_for(64, 64) == 1
    # two prompts of 2 tokens do not share a page of 4
    assert num_pages_for(2, 4) + num_pages_for(2, 4) == 2


def test_the_slots_of_a_page_lie_side_by_side_and_pages_keep_their_order():
    assert list(slots_of_pages([3, 0], 4)) == [12, 13, 14, 15, 0, 1, 2, 3]
    assert list(slots_of_pages([3, 0, 7], 1)) == [3, 0, 7]
    assert list(slots_of_pages([], 4)) == []


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_slots_lead_back_to_their_pages(page_size: int):
    pages = [5, 0, 2]
    slots = slots_of_pages(pages, page_size)
    assert pages_of_slots(slots, page_size) == pages
    # the last page may be cut anywhere behind its first slot
    assert pages_of_slots(slots[: 2 * page_size + 1], page_size) == pages
    assert pages_of_slots([], page_size) == []


# --- the KV pool ----------------------------------------------------------------------


def new_pool(device: str = "cpu", **sizes: Any) -> MHAKVPool:
    small = dict(num_layers=2, num_kv_heads=3, head_dim=4, num_pages=8, page_size=4)
    sizes = {**small, "dtype": torch.float32, **sizes}
    return MHAKVPool(device=torch.device(device), **sizes)


def new_req(
    row: int, prompt_len: int, cached_len: int = 0, output_len: int = 20
) -> Req:
    return Req(
        array("i", range(100 * row, 100 * row + prompt_len)),
        row,
        cached_len,
        output_len,
        uid=row,
        sampling_params=SamplingParams(),
    )


def random_kv(num_tokens: int, seed: int, device: str = "cpu") -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, num_tokens, 3, 4, generator=generator).to(device)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_kv_is_read_back_through_the_page_table(page_size: int, device: str):
    """Two requests on scattered pages, written in two forwards: prefill and decode."""
    pool = new_pool(device, num_pages=96 // page_size, page_size=page_size)
    tables = ReqTable(2, 48, torch.device(device))
    allocator = PageAllocator(pool.num_pages)
    rng = random.Random(0)
    pages = allocator.allocate(pool.num_pages)
    rng.shuffle(pages)
    half = num_pages_for(48, page_size)
    reqs = [new_req(0, 37), new_req(1, 17)]
    for req, part in zip(reqs, (pages[:half], pages[half:]), strict=True):
        tables.write_slots(req.table_idx, 0, slots_of_pages(part, page_size))

    written: dict[tuple[int, int], list[torch.Tensor]] = {}
    for step in range(3):
        batch = Batch(reqs, "prefill" if step == 0 else "decode")
        tables.fill_batch(batch)
        for layer in range(2):
            k, v = random_kv(batch.num_tokens, seed=2 * step + layer, device=device)
            pool.store_kv(k, v, batch.out_loc, layer)
            lens = [req.extend_len for req in reqs]
            parts = zip(reqs, k.split(lens), v.split(lens), strict=True)
            for req, *kv in parts:
                written.setdefault((req.uid, layer), []).append(torch.stack(kv))
        for req in reqs:
            req.complete_one()

    for req in reqs:
        slots = tables.page_table[req.table_idx, : req.cached_len]
        for layer in range(2):
            k, v = torch.cat(written[req.uid, layer], dim=1)
            assert torch.equal(pool.k_cache(layer)[slots], k)
            assert torch.equal(pool.v_cache(layer)[slots], v)


def test_a_write_touches_its_own_slots_only():
    pool = new_pool()
    k, v = random_kv(2, seed=0)
    pool.store_kv(k, v, torch.tensor([9, 4]), layer_id=1)
    assert torch.equal(pool.k_cache(1)[[9, 4]], k)
    assert torch.equal(pool.v_cache(1)[[9, 4]], v)
    others = [slot for slot in range(32) if slot not in (4, 9)]
    assert pool.k_cache(1)[others].eq(0).all() and pool.v_cache(1)[others].eq(0).all()
    assert pool.k_cache(0).eq(0).all() and pool.v_cache(0).eq(0).all()


def test_the_pool_keeps_a_copy_of_what_is_written():
    pool = new_pool()
    k, v = random_kv(1, seed=0)
    kept = k.clone()
    pool.store_kv(k, v, torch.tensor([5]), layer_id=0)
    k.fill_(99)
    assert torch.equal(pool.k_cache(0)[[5]], kept)


def test_a_pool_without_pages_is_refused():
    with pytest.raises(PoolError, match="num_pages is 0"):
        new_pool(num_pages=0)


# --- memory arithmetic ----------------------------------------------------------------


def test_a_token_takes_a_key_and_a_value_in_every_layer():
    assert kv_bytes_per_token(2, 3, 4, torch.float32) == 2 * 2 * 3 * 4 * 4
    assert kv_bytes_per_token(2, 3, 4, torch.bfloat16) == 2 * 2 * 3 * 4 * 2


@pytest.mark.model
def test_a_token_of_smollm2_takes_46080_bytes(smollm2: Path):
    config = ModelConfig.from_dir(smollm2)
    per_token = kv_bytes_per_token(
        config.num_layers, config.num_kv_heads, config.head_dim, torch.float32
    )
    assert per_token == 2 * 30 * 3 * 64 * 4 == 46080


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_buffers_take_what_the_arithmetic_says(dtype: torch.dtype):
    pool = new_pool(dtype=dtype)
    buffers = [pool.k_cache(0), pool.v_cache(0)]
    real = sum(view.untyped_storage().nbytes() for view in buffers)
    assert real == 8 * 4 * kv_bytes_per_token(2, 3, 4, dtype)
    # and the layers are parts of those two buffers
    for first, last in zip(buffers, (pool.k_cache(1), pool.v_cache(1)), strict=True):
        assert first.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        assert first.shape == last.shape == (32, 3, 4)


@pytest.mark.parametrize(
    ("num_bytes", "pages"), [(0, 0), (639, 0), (640, 1), (1279, 1), (6400, 10)]
)
def test_only_whole_pages_fit(num_bytes: int, pages: int):
    assert pages_that_fit(num_bytes, page_size=16, bytes_per_token=40) == pages


# --- the tables -----------------------------------------------------------------------


def filled_tables(device: str = "cpu") -> ReqTable:
    """Row r: position i holds token 100 r + i in slot 1000 r + i."""
    tables = ReqTable(3, 16, torch.device(device))
    for row in range(3):
        tables.write_tokens(row, 0, range(100 * row, 100 * row + 16))
        tables.write_slots(row, 0, range(1000 * row, 1000 * row + 16))
    return tables


def shown(batch: Batch) -> dict[str, list[int]]:
    return dict(
        input_ids=batch.input_ids.tolist(),
        positions=batch.positions.tolist(),
        out_loc=batch.out_loc.tolist(),
        logit_indices=batch.logit_indices.tolist(),
    )


def test_a_prompt_goes_in_whole(device: str):
    batch = Batch([new_req(row=2, prompt_len=3)], "prefill")
    filled_tables(device).fill_batch(batch)
    assert shown(batch) == dict(
        input_ids=[200, 201, 202],
        positions=[0, 1, 2],
        out_loc=[2000, 2001, 2002],
        logit_indices=[2],
    )


def test_a_batch_holds_each_requests_tokens_behind_those_of_the_one_before(device: str):
    hit = new_req(row=1, prompt_len=5, cached_len=3)
    chunk = new_req(row=0, prompt_len=9, cached_len=2)
    chunk.limit_chunk(3)
    whole = new_req(row=2, prompt_len=2)
    batch = Batch([hit, chunk, whole], "prefill")
    filled_tables(device).fill_batch(batch)
    assert shown(batch) == dict(
        input_ids=[103, 104, 2, 3, 4, 200, 201],
        positions=[3, 4, 2, 3, 4, 0, 1],
        out_loc=[1003, 1004, 2, 3, 4, 2000, 2001],
        logit_indices=[1, 6],  # the slice of a prompt gives no token
    )


def test_decode_takes_the_newest_token_of_each_request(device: str):
    reqs = [new_req(row=2, prompt_len=3), new_req(row=0, prompt_len=7)]
    for req in reqs:
        req.complete_one()
    batch = Batch(reqs, "decode")
    filled_tables(device).fill_batch(batch)
    assert shown(batch) == dict(
        input_ids=[203, 7],
        positions=[3, 7],
        out_loc=[2003, 7],
        logit_indices=[0, 1],
    )


def test_a_batch_of_slices_needs_no_logits():
    req = new_req(row=0, prompt_len=9)
    req.limit_chunk(4)
    batch = Batch([req], "prefill")
    filled_tables().fill_batch(batch)
    assert shown(batch)["logit_indices"] == []


def test_a_sampled_token_is_written_behind_the_newest(device: str):
    tables = filled_tables(device)
    before = tables.token_pool.clone()
    chunk = new_req(row=1, prompt_len=9)
    chunk.limit_chunk(2)
    reqs = [new_req(row=2, prompt_len=3), chunk, new_req(row=0, prompt_len=5)]
    batch = Batch(reqs, "prefill")
    tables.write_next_tokens(batch, torch.tensor([77, 88], device=device))
    before[2, 3], before[0, 5] = 77, 88
    assert torch.equal(tables.token_pool, before)


def test_the_token_that_was_written_is_the_next_input():
    tables = filled_tables()
    req = new_req(row=1, prompt_len=4)
    tables.write_next_tokens(Batch([req], "prefill"), torch.tensor([77]))
    req.complete_one()
    batch = Batch([req], "decode")
    tables.fill_batch(batch)
    assert (batch.input_ids.tolist(), batch.positions.tolist()) == ([77], [4])


def test_a_request_that_may_not_grow_gets_no_token():
    req = new_req(row=0, prompt_len=4, output_len=0)
    with pytest.raises(AssertionError):
        filled_tables().write_next_tokens(Batch([req], "prefill"), torch.tensor([1]))


def test_slots_are_read_on_the_host_as_they_stand_on_the_device(device: str):
    tables = filled_tables(device)
    tables.write_slots(1, 4, [7, 8, 9])
    assert list(tables.read_slots(1, 2, 9)) == [1002, 1003, 7, 8, 9, 1007, 1008]
    for row in range(3):
        on_device = tables.page_table[row].tolist()
        assert list(tables.read_slots(row, 0, 16)) == on_device


def test_the_table_keeps_a_copy_of_what_is_written():
    tables, slots, tokens = filled_tables(), array("i", [7, 8]), array("i", [1, 2])
    tables.write_slots(0, 0, slots)
    tables.write_tokens(0, 0, tokens)
    slots[0] = tokens[0] = 99
    read = tables.read_slots(0, 0, 2)
    read[1] = 99
    assert list(tables.read_slots(0, 0, 2)) == [7, 8]
    assert tables.page_table[0, :2].tolist() == [7, 8]
    assert tables.token_pool[0, :2].tolist() == [1, 2]


def test_writing_nothing_changes_nothing():
    tables = filled_tables()
    tables.write_slots(1, 16, [])
    assert torch.equal(tables.page_table, filled_tables().page_table)


@pytest.mark.parametrize("write", [ReqTable.write_slots, ReqTable.write_tokens])
def test_a_row_is_not_written_past_its_end(
    write: Callable[[ReqTable, int, int, Sequence[int]], None],
):
    tables = filled_tables()
    with pytest.raises(AssertionError, match="17"):
        write(tables, 0, 15, [5, 6])
    assert list(tables.read_slots(0, 0, 16)) == list(range(16))
    assert torch.equal(tables.token_pool, filled_tables().token_pool)


def test_a_step_grows_no_tensor():
    """Tables and pool are the same memory after a hundred decode steps as before."""
    pool, tables = new_pool(num_pages=64), ReqTable(1, 256, CPU)
    tables.write_slots(0, 0, slots_of_pages(range(64), 4))
    owned = [tables.page_table, tables.token_pool, pool.k_cache(0), pool.v_cache(1)]

    def memory() -> list[tuple[int, int]]:
        storages = [tensor.untyped_storage() for tensor in owned]
        return [(storage.data_ptr(), storage.nbytes()) for storage in storages]

    def live_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    def steps(req: Req, count: int) -> None:
        for _ in range(count):
            batch = Batch([req], "prefill")
            tables.fill_batch(batch)
            pool.store_kv(*random_kv(batch.num_tokens, 0), batch.out_loc, 0)
            tables.write_next_tokens(batch, torch.tensor([1]))
            req.complete_one()

    req = new_req(row=0, prompt_len=3, output_len=200)
    steps(req, 2)
    before = memory(), live_tensors()
    steps(req, 100)
    assert (memory(), live_tensors()) == before
