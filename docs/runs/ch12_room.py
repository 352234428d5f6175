"""How many requests fit in 1 GiB if sliding layers keep all, or their window only.

The layers are those of Gemma 3 270M. No model runs: pages are given, taken and counted.
"""

import torch

from minisgl.kvcache.mha_pool import kv_bytes_per_token
from minisgl.kvcache.page_allocator import num_pages_for, slots_of_pages
from minisgl.kvcache.swa_mapping import SWAMapping, left_window_len

FULL_LAYERS, SLIDING_LAYERS, WINDOW = 3, 15, 512
PAGE_SIZE, MEMORY = 16, 2**30


def page_bytes(num_layers):
    return PAGE_SIZE * kv_bytes_per_token(num_layers, 1, 256, torch.float32)


def most_window_pages(length):
    """What a request holds at most while it grows to `length`, token by token."""
    num_pages = num_pages_for(length, PAGE_SIZE)
    mapping, freed, most = SWAMapping(num_pages, num_pages, PAGE_SIZE), 0, 0
    for num_tokens in range(length):
        if num_tokens % PAGE_SIZE == 0:
            mapping.allocate(slots_of_pages([num_tokens // PAGE_SIZE], PAGE_SIZE))
        most = max(most, num_pages - mapping.num_free)
        end = left_window_len(num_tokens + 1, WINDOW, PAGE_SIZE)
        gone = range(freed // PAGE_SIZE, end // PAGE_SIZE)
        mapping.free(slots_of_pages(gone, PAGE_SIZE))
        freed = end
    return most


full, sliding = page_bytes(FULL_LAYERS), page_bytes(SLIDING_LAYERS)
print(f"a token takes in {FULL_LAYERS} full layers: {full // PAGE_SIZE:,} bytes")
print(f"           in {SLIDING_LAYERS} sliding layers: {sliding // PAGE_SIZE:,} bytes")
print(f"1 GiB, pages of {PAGE_SIZE} tokens, a window of {WINDOW} tokens\n")
print("how many requests fit at once:")
print("tokens each   every layer keeps all   sliding layers keep a window")
for length in (512, 2_048, 8_192, 32_768):
    num_pages, held = num_pages_for(length, PAGE_SIZE), most_window_pages(length)
    all_kept = MEMORY // (num_pages * (full + sliding))
    window_kept = MEMORY // (num_pages * full + held * sliding)
    print(f"{length:11,}   {all_kept:21}   {window_kept:28}")
print(f"\na request of any length holds at most {held} window pages")
