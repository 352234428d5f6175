"""Where keys and values lie: pages of a pool, found through a table."""

from __future__ import annotations

from array import array

import torch
from helper import smollm2
from transformers import AutoTokenizer

from minisgl.core import Batch, Req, SamplingParams
from minisgl.errors import PoolError
from minisgl.kvcache.mha_pool import MHAKVPool, kv_bytes_per_token, pages_that_fit
from minisgl.kvcache.page_allocator import PageAllocator, slots_of_pages
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.config import ModelConfig

CPU, PAGE = torch.device("cpu"), 4
model_dir = smollm2()
config = ModelConfig.from_dir(model_dir)
names = ("num_layers", "num_kv_heads", "head_dim")
sizes = {name: getattr(config, name) for name in names}
per_token = kv_bytes_per_token(**sizes, dtype=torch.float32)
sum_of = "2 (key and value) x {} layers x {} heads x {} numbers x 4 bytes"
print(f"A token takes {sum_of.format(*sizes.values())} = {per_token:,} bytes")
longest, fit = config.max_position, pages_that_fit(2**30, 16, per_token)
print(f"A request of {longest:,} tokens takes {longest * per_token // 2**20} MiB")
print(f"In 1 GiB fit {fit:,} pages of 16, which are {fit * 16:,} tokens\n")

allocator = PageAllocator(8)
a, b = allocator.allocate(2), allocator.allocate(2)
print(f"8 pages of {PAGE} slots; a takes {a}, b takes {b}, and a gives its own back")
allocator.free(a)
c = allocator.allocate(3)
print(f"c takes {c}: pages need not lie side by side")
owner = dict.fromkeys(b, "b") | dict.fromkeys(c, "c")
drawn = "|".join(owner.get(page, ".") * PAGE for page in range(8))
print(f"  pool |{drawn}|\n")

text = "One page holds four tokens, no more."
tokens = array("i", AutoTokenizer.from_pretrained(model_dir)(text).input_ids)
tables = ReqTable(num_rows=1, max_len=16, device=CPU)
tables.write_tokens(0, 0, tokens)
tables.write_slots(0, 0, slots_of_pages(c, PAGE))
batch = Batch([Req(tokens, 0, 0, 3, 0, SamplingParams())], "prefill")
tables.fill_batch(batch)
for name in ("input_ids", "positions", "out_loc"):
    print(f"{name:>11}", *(f"{number:>6}" for number in getattr(batch, name).tolist()))
pool = MHAKVPool(**sizes, num_pages=8, page_size=PAGE, dtype=torch.float32, device=CPU)
k, v = torch.randn(2, len(tokens), config.num_kv_heads, config.head_dim)
pool.store_kv(k, v, batch.out_loc, layer_id=29)
back = pool.k_cache(29)[tables.page_table[0, : len(tokens)]]
print(f"written by slot, read through the page table: equal is {torch.equal(back, k)}")
try:
    allocator.free([1, 4, 1])
except PoolError as error:
    print(f"\nNo page is given back twice: {error}")
