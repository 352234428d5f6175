"""The unified tree draws itself; with Full alone it does what the radix tree does."""

from __future__ import annotations

from array import array

from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    EvictParams,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)
from minisgl.llm import LLM

freed: list[int] = []
cache = UnifiedRadixCache(1, [FullComponent(freed.extend)])


def insert(tokens: list[int], slots: list[int]) -> None:
    cache.insert(InsertParams(RadixKey(tokens), array("i", slots)))


insert([1, 2, 3, 4], [10, 11, 12, 13])
insert([1, 2, 5, 6], [20, 21, 22, 23])
insert([7, 8], [30, 31])
print(
    f"[1,2,3,4], [1,2,5,6] and [7,8] are inserted; {freed} came twice, and are freed:"
)
cache.pretty_print()

match = cache.match_prefix(MatchPrefixParams(RadixKey([1, 2, 3, 9])))
lock = cache.inc_lock_ref(match.last_device_node)
slots = match.device_indices.tolist()
print(f"\n[1,2,3,9] matches {match.cached_len} tokens, at {slots}; they are locked:")
cache.pretty_print()
freed.clear()
cache.evict(EvictParams(num_tokens=100))
print(f"\nevict all: {sorted(freed)} are freed; what is locked stays:")
cache.pretty_print()
cache.dec_lock_ref(lock.node, lock.to_dec_params())
cache.check_integrity()

system = "You are a helpful assistant. Answer concisely and accurately. " * 4
ends = "What is 2 + 2?|Name a primary color.|What is the capital of Japan?|Spell cat."
prompts = [system + question for question in ends.split("|")]
seen = {}
print("\nFour questions behind one system prompt:")
for name in ("radix", "unified"):
    with LLM(smollm2(), device="cpu", num_page_override=1024, cache_type=name) as llm:
        results = llm.generate(prompts[0], SamplingParams(max_tokens=4))
        results += llm.generate(prompts[1:], SamplingParams(max_tokens=4))
    seen[name] = [(result["token_ids"], result["cached_tokens"]) for result in results]
    print(f"  {name}: {[cached for _, cached in seen[name]]} tokens were in the cache")
print(f"  the same answers: {'yes' if seen['radix'] == seen['unified'] else 'no'}")
