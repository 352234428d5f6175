"""The radix tree against a textbook version: same trace, same pool, same answers."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean, median
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from benchmarks.textbook_radix import TextbookRadixCache
from benchmarks.traces import Trace
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_tree import RadixTree


class Subject(Protocol):
    """A cache under measurement. `key` and `row` make its inputs, outside the clock."""

    def key(self, tokens: array[int]) -> Any: ...

    def row(self, slots: Any, new: list[int]) -> Any: ...

    def open(self, key: Any, num_free: int) -> tuple[int, Any, Any, Any]:
        """Match, read the slots, lock, evict what is missing.

        Returns the cached length, the slots, the receipt, and the evicted slots, None
        if nothing had to go.
        """

    def close(self, key: Any, row: Any, receipt: Any) -> int:
        """Insert and unlock; returns how much had been there."""


class Ours:
    def __init__(self, page_size: int) -> None:
        self.tree = RadixTree(page_size)

    key = staticmethod(RadixKey)
    row = staticmethod(lambda slots, new: slots + array("i", new))

    def open(self, key: RadixKey, num_free: int) -> tuple[int, Any, Any, Any]:
        tree = self.tree
        handle = tree.match_prefix(key)
        slots = handle.matched_slots()
        tree.lock(handle)
        missing = _pages(len(key), tree.page_size) - handle.cached_len - num_free
        evicted = tree.evict(missing) if missing > 0 else None
        return handle.cached_len, slots, handle, evicted

    def close(self, key: RadixKey, row: array[int], handle: Any) -> int:
        cached_len, _ = self.tree.insert_prefix(key, row)
        self.tree.unlock(handle)
        return cached_len


class Textbook:
    def __init__(self, page_size: int) -> None:
        self.cache = TextbookRadixCache(page_size)

    key = staticmethod(lambda tokens: torch.tensor(tokens, dtype=torch.int32))

    @staticmethod
    def row(slots: torch.Tensor, new: list[int]) -> torch.Tensor:
        return torch.cat([slots, torch.tensor(new, dtype=torch.int32)])

    def open(self, key: torch.Tensor, num_free: int) -> tuple[int, Any, Any, Any]:
        cache = self.cache
        node, cached_len = cache.match_prefix(key)
        slots = cache.matched_indices(node)
        cache.lock(node)
        missing = _pages(len(key), cache.page_size) - cached_len - num_free
        evicted = cache.evict(missing) if missing > 0 else None
        return cached_len, slots, node, evicted

    def close(self, key: torch.Tensor, row: torch.Tensor, node: Any) -> int:
        cached_len = self.cache.insert_prefix(key, row)
        self.cache.lock(node, -1)
        return cached_len


def _pages(num_tokens: int, page_size: int) -> int:
    """`num_tokens` rounded up to whole pages."""
    return -(-num_tokens // page_size) * page_size


@dataclass
class Outcome:
    """What a cache answered, which must not depend on the cache, and its times."""

    hits: list[int]
    evicted: list[int]
    times_ns: list[int]  # one per request

    @property
    def us_per_request(self) -> float:
        return mean(self.times_ns) / 1000


def run_trace(
    subject: Subject,
    trace: Trace,
    page_size: int,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:
    """Play all requests of `trace`, one after another, from an empty cache and pool.

    On the clock are the calls of the cache alone: match, read the matched slots, lock,
    evict if the pool runs short, insert, unlock. Packing the key, taking slots from
    the pool and making the row of slots is not, on either side.
    """
    free = list(range(trace.pool_size // page_size * page_size))[::-1]
    hits, all_evicted, times = [], [], []
    for tokens in trace.prompts:
        key = subject.key(tokens)
        start = perf_counter_ns()
        cached_len, slots, receipt, evicted = subject.open(key, len(free))
        elapsed = perf_counter_ns() - start

        evicted_slots = [] if evicted is None else evicted.tolist()
        free += evicted_slots
        num_new = _pages(len(tokens), page_size) - cached_len
        new = free[len(free) - num_new :]
        del free[len(free) - num_new :]
        row = subject.row(slots, new[: len(tokens) - cached_len])

        start = perf_counter_ns()
        inserted_after = subject.close(key, row, receipt)
        times.append(elapsed + perf_counter_ns() - start)

        assert inserted_after == cached_len, (inserted_after, cached_len)
        kept = len(tokens) // page_size * page_size - cached_len
        free += new[kept:]  # the page that is not full
        hits.append(cached_len)
        all_evicted += evicted_slots
        advance()
    return Outcome(hits, all_evicted, times)


def compare(
    trace: Trace, page_size: int, rounds: int, advance: Callable[[], None]
) -> tuple[Outcome, Outcome]:
    """Both caches on one trace, in turn, `rounds` times.

    A request does the same work in every round, so the least of its times is the one
    that other programs on this machine disturbed least. Raises AssertionError when the
    caches do not agree on every hit and every eviction.
    """
    ours, textbook = [], []
    for _ in range(rounds):
        ours.append(run_trace(Ours(page_size), trace, page_size, advance))
        textbook.append(run_trace(Textbook(page_size), trace, page_size, advance))
        assert ours[-1].hits == textbook[-1].hits, f"trace {trace.name}: hits differ"
        assert ours[-1].evicted == textbook[-1].evicted, (
            f"trace {trace.name}: evictions differ"
        )
    return _least_times(ours), _least_times(textbook)


def _least_times(outcomes: list[Outcome]) -> Outcome:
    columns = zip(*(outcome.times_ns for outcome in outcomes), strict=True)
    return replace(outcomes[0], times_ns=[min(column) for column in columns])


@dataclass(frozen=True)
class EvictCost:
    num_leaves: int
    fresh_us: float  # leaves in the order of their insertion
    released_us: float  # all locked and released again, in random order


def measure_evict(num_leaves: int, advance: Callable[[], None]) -> EvictCost:
    """The time to evict one leaf of a tree with `num_leaves` of them."""
    fresh = _tree_with_leaves(num_leaves, advance)
    released = _tree_with_leaves(num_leaves, advance)
    handles = [released.match_prefix(_leaf_key(n)) for n in range(num_leaves)]
    for handle in handles:
        released.lock(handle)
    random.Random(0).shuffle(handles)
    for handle in handles:
        released.unlock(handle)
    return EvictCost(num_leaves, _time_evictions(fresh), _time_evictions(released))


def _leaf_key(number: int) -> RadixKey:
    return RadixKey(array("i", [number, 0]))


def _tree_with_leaves(num_leaves: int, advance: Callable[[], None]) -> RadixTree:
    tree = RadixTree()
    for number in range(num_leaves):
        tree.insert_prefix(_leaf_key(number), [2 * number, 2 * number + 1])
        advance()
    return tree


def _time_evictions(tree: RadixTree) -> float:
    """In µs: the median of 50 evictions, and the least of ten such medians."""
    medians = []
    for _ in range(10):
        times = []
        for _ in range(50):
            start = perf_counter_ns()
            tree.evict(1)
            times.append(perf_counter_ns() - start)
        medians.append(median(times))
    return min(medians) / 1000
