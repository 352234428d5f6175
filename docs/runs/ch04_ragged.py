"""Requests of many lengths in one forward: padded to a rectangle, or in a loop."""

from array import array
from time import process_time

import torch
import torch.nn.functional as F

from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Batch, Req, SamplingParams
from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.req_table import ReqTable

HEADS, KV_HEADS, DIM = 9, 3, 64  # one layer of SmolLM2
CPU, FLOAT = torch.device("cpu"), torch.float32
PROMPTS = [1000] + [20] * 15
DECODING = [20 + i for i in range(64)]


class World:
    """Requests of these lengths; their slots lie scattered over a pool."""

    def __init__(self, lens, cached):
        sizes = dict(num_layers=1, num_kv_heads=KV_HEADS, head_dim=DIM)
        self.pool = MHAKVPool(
            **sizes, num_pages=sum(lens), page_size=1, dtype=FLOAT, device=CPU
        )
        self.tables = ReqTable(len(lens), max(lens), CPU)
        slots = torch.randperm(sum(lens)).split(lens)
        self.reqs = []
        for row, (length, known) in enumerate(zip(lens, cached, strict=True)):
            self.tables.write_slots(row, 0, array("i", slots[row].tolist()))
            ids = array("i", [0] * length)
            self.reqs.append(Req(ids, row, known, 1, row, SamplingParams()))
        self.backend = TorchBackend(self.pool, self.tables.page_table, FLOAT)
        num_new = sum(lens) - sum(cached)
        for cache in (self.pool.k_cache(0), self.pool.v_cache(0)):
            cache.normal_()
        self.qkv = [torch.randn(num_new, h, DIM) for h in (HEADS, KV_HEADS, KV_HEADS)]

    def forward(self, phase):
        """What the backend of this chapter does; prefill loops, decode pads."""
        batch = Batch(self.reqs, phase)
        self.tables.fill_batch(batch)
        self.backend.prepare_metadata(batch)
        return self.backend.forward(*self.qkv, 0, batch)

    def padded_prefill(self):
        """All queries and all keys of whole prompts in one call."""
        batch = Batch(self.reqs, "prefill")
        self.tables.fill_batch(batch)
        q, k, v = self.qkv
        self.pool.store_kv(k, v, batch.out_loc, 0)
        lens = [req.device_len for req in self.reqs]
        q = torch.nn.utils.rnn.pad_sequence(q.split(lens), batch_first=True)
        slots = self.tables.page_table[: len(lens), : max(lens)]
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            self.pool.k_cache(0)[slots].transpose(1, 2),
            self.pool.v_cache(0)[slots].transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        ).transpose(1, 2)
        return torch.cat([row[:n] for row, n in zip(out, lens, strict=True)])


def best_times(forms, rounds):
    """Shortest time of each; they take turns, and give the same numbers."""
    first, second = (form() for form in forms)
    assert torch.allclose(first, second, atol=1e-5)
    times = [[] for _ in forms]
    for _ in range(rounds):
        for form, seconds in zip(forms, times, strict=True):
            start = process_time()
            form()
            seconds.append(process_time() - start)
    return [min(seconds) for seconds in times]


torch.manual_seed(0)
with torch.inference_mode():
    num, longest = len(PROMPTS), max(PROMPTS)
    world = World(PROMPTS, [0] * num)
    forms = [world.padded_prefill, lambda: world.forward("prefill")]
    padded, loop = best_times(forms, 5)
    print(f"prefill of {num} prompts, one of {longest:,} tokens, the others of 20")
    print(f"  one padded call   {num * longest:>6,} rows of queries")
    print(f"  a loop            {sum(PROMPTS):>6,} rows of queries")
    print(f"  the loop is {padded / loop:.0f} times as fast")

    num, longest = len(DECODING), max(DECODING)
    world = World(DECODING, [n - 1 for n in DECODING])
    forms = [lambda: world.forward("prefill"), lambda: world.forward("decode")]
    loop, padded = best_times(forms, 40)
    print(f"decode of {num} requests of {min(DECODING)} to {longest} tokens")
    print(f"  a loop            {num:>6} calls of attention, {sum(DECODING):,} keys")
    print(f"  one padded call   {1:>6} call of attention, {num * longest:,} keys")
    print(f"  the padded call is {loop / padded:.1f} times as fast")
