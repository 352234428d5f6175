"""The radix tree at work: shared, split, locked and evicted; and what it saves."""

from __future__ import annotations

import torch
from helper import smollm2

from minisgl.core import Context, SamplingParams, reset_global_ctx, set_global_ctx
from minisgl.kvcache.radix_cache import RadixPrefixCache
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.llm import LLM


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def show(node: RadixTreeNode, depth: int = 0) -> None:
    for child in sorted(node.children.values(), key=lambda child: child.key.tolist()):
        key, value = child.key.tolist(), child.value.tolist()
        print(f"{'    ' * depth}└─ {key=} {value=} ref={child.ref_count}")
        show(child, depth + 1)


set_global_ctx(Context(page_size=1))
cache = RadixPrefixCache(torch.device("cpu"))
cache.insert_prefix(ids(1, 2, 3, 4), ids(10, 11, 12, 13))
cache.insert_prefix(ids(1, 2, 5, 6), ids(10, 11, 20, 21))
cache.insert_prefix(ids(7, 8), ids(30, 31))
print("[1,2,3,4], [1,2,5,6] and [7,8] are inserted; what two share is stored once:")
show(cache.root_node)

handle = cache.match_prefix(ids(1, 2, 3, 9)).cuda_handle
cache.lock_handle(handle)
slots = handle.get_matched_indices().tolist()
print(f"\n[1,2,3,9] matches {handle.cached_len} tokens, at {slots}; they are locked:")
show(cache.root_node)
print("evictable, protected:", tuple(cache.size_info))
print("\nevict 2: freed", cache.evict(2).tolist(), "(whole leaves, oldest first)")
print("evict 1: freed", cache.evict(1).tolist())
print("what is locked stays:")
show(cache.root_node)
cache.check_integrity()
reset_global_ctx()

system = "You are a helpful assistant. Answer concisely and accurately. " * 4
ends = "What is 2 + 2?|Name a primary color.|What is the capital of Japan?|Spell cat."
questions = ends.split("|")
answer = SamplingParams(max_tokens=4)
print("\nFour questions behind one system prompt:")
for cache_type in ("naive", "radix"):
    with LLM(
        smollm2(), device="cpu", num_page_override=1024, cache_type=cache_type
    ) as m:
        first = m.generate(system + questions[0], answer)
        results = first + m.generate([system + q for q in questions[1:]], answer)
    total = sum(result["prompt_tokens"] for result in results)
    computed = sum(result["computed_tokens"] for result in results)
    print(f"  {cache_type}: {total} prompt tokens in all, {computed} computed")
