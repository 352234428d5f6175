"""How many requests fit in 1 GiB: their longest length reserved, or page by page."""

import random

import torch
from helper import smollm2

from minisgl.kvcache.mha_pool import kv_bytes_per_token, pages_that_fit
from minisgl.kvcache.page_allocator import PageAllocator, num_pages_for
from minisgl.models.config import ModelConfig

PAGE = 16
config = ModelConfig.from_dir(smollm2())
per_token = kv_bytes_per_token(
    config.num_layers, config.num_kv_heads, config.head_dim, torch.float32
)
num_pages = pages_that_fit(2**30, PAGE, per_token)
rng = random.Random(3)
lens = [rng.randint(20, 600) for _ in range(1000)]

print(f"a pool of {num_pages * PAGE:,} slots, requests of 20 to 600 tokens")
reserved = num_pages * PAGE // config.max_position
used = sum(lens[:reserved])
print(f"reserved {config.max_position:,} slots each: {reserved} requests,", end=" ")
print(f"{100 * (1 - used / (reserved * config.max_position)):.0f} % of them empty")

allocator, paged, used = PageAllocator(num_pages), 0, 0
for length in lens:
    if num_pages_for(length, PAGE) > allocator.num_free:
        break
    allocator.allocate(num_pages_for(length, PAGE))
    paged, used = paged + 1, used + length
taken = (num_pages - allocator.num_free) * PAGE
print(f"in pages of {PAGE} slots: {paged} requests,", end=" ")
print(f"{100 * (1 - used / taken):.1f} % of their slots empty")
