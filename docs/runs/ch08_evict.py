"""512 chats in a pool that holds a fraction of them: how many nodes evict looks at."""

from array import array
from unittest.mock import patch

from benchmarks.traces import build_trace

from minisgl.kvcache.leaf_queue import LeafQueue
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree

is_evictable_leaf = RadixTreeNode.is_evictable_leaf
pop_oldest = LeafQueue.pop_oldest
counts = {"looks": 0, "evicted": 0, "late": 0, "calls": 0, "whole": 0}


def counted_pop(queue):
    """As pop_oldest, counting the nodes it asks whether they may go."""

    def counted_look(node):
        counts["looks"] += 1
        return is_evictable_leaf(node)

    counts["evicted"] += 1
    counts["late"] += len(queue._late)
    with patch.object(RadixTreeNode, "is_evictable_leaf", counted_look):
        return pop_oldest(queue)


trace = build_trace("e")
tree, free = RadixTree(), array("i", range(trace.pool_size))
with patch.object(LeafQueue, "pop_oldest", counted_pop):
    for tokens in trace.prompts:
        handle = tree.match_prefix(RadixKey(tokens[:-1]))
        tree.lock(handle)
        num_new = len(tokens) - handle.cached_len
        if num_new > len(free):
            counts["calls"] += 1
            counts["whole"] += sum(1 for _ in tree.nodes())
            free += tree.evict(num_new - len(free))
        new, free = free[:num_new], free[num_new:]
        tree.insert_prefix(RadixKey(tokens), handle.matched_slots() + new)
        tree.unlock(handle)
tree.check_integrity()
calls, evicted = counts["calls"], counts["evicted"]
print(f"{len(trace.prompts):,} requests; {calls:,} calls of evict,", end=" ")
print(f"{evicted:,} leaves gone")
print(f"nodes in the tree at a call: {counts['whole'] / calls:.0f} on average")
print(f"looked at by a walk through the tree: {counts['whole']:,}")
print(f"looked at by the queue: {counts['looks']:,}")
print(f"waiting in the heap: {counts['late'] / evicted:.1f} on average")
