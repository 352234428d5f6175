"""Eviction by the time of day, when the clock stands still between two requests."""

import torch
from benchmarks.textbook_radix import TextbookRadixCache


class CoarseClock(TextbookRadixCache):
    """All that happens here happens within one tick of the clock."""

    clock = property(lambda self: 1, lambda self, value: None)


def ids(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def serve(cache):
    cache.insert_prefix(ids(1, 2), ids(0, 1))
    cache.insert_prefix(ids(3, 4), ids(2, 3))
    cache.match_prefix(ids(1, 2))
    print("[1, 2] came, [3, 4] came, [1, 2] was used again.", end=" ")
    print("Evicted:", "[1, 2]" if cache.evict(2).tolist() == [0, 1] else "[3, 4]")


print("A clock that stood still meanwhile:")
serve(CoarseClock(page_size=1))
print("A counter:")
serve(TextbookRadixCache(page_size=1))
