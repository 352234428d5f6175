"""2,000 prompts of shared examples: what a larger page finds, and what it holds."""

from array import array

from benchmarks.traces import build_trace

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_tree import RadixTree

trace = build_trace("c")
total = sum(map(len, trace.prompts))
print(f"{len(trace.prompts):,} prompts: six shared examples of 120 tokens,", end=" ")
print("40 of their own")
print("page   found   of the prompts   held in the tree")
for page_size in (1, 16, 64, 256):
    tree, found, next_slot = RadixTree(page_size), 0, 0
    for tokens in trace.prompts:
        slots = array("i", range(next_slot, next_slot + len(tokens)))
        next_slot += len(tokens)
        found += tree.insert_prefix(RadixKey(tokens), slots).cached_len
    held = len(tree.held_slots())
    print(f"{page_size:4} {found:9,} {100 * found / total:12.0f} % {held:18,}")
