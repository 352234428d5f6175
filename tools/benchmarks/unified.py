"""The unified tree with each set of components, beside the radix tree of chapter 08."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from time import perf_counter_ns

from benchmarks.traces import Trace
from benchmarks.tree import Ours, run_trace
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    EvictParams,
    FullComponent,
    InsertParams,
    MambaComponent,
    MatchPrefixParams,
    MatchResult,
    SWAComponent,
    UnifiedRadixCache,
)

SETS = ("full", "full+swa", "full+mamba", "full+swa+mamba")
WINDOW = 512  # tokens, as in Gemma 3
NUM_STATES = 10_000


class NoWindowPool:
    """Pairs nothing: the benchmark counts window slots by the tree's own sizes."""

    def free(self, full_slots: array[int]) -> None: ...

    def move(self, source: array[int], target: array[int]) -> None: ...


@dataclass
class States:
    free_slots: list[int] = field(default_factory=lambda: list(range(NUM_STATES)))

    def allocate(self) -> int | None:
        return self.free_slots.pop() if self.free_slots else None

    def free(self, slot: int) -> None:
        self.free_slots.append(slot)

    def copy(self, source: int, target: int) -> None: ...


class UnifiedRun:
    """One trace on one set of components, all pools large enough for the same hits."""

    def __init__(self, components: str, page_size: int, pool_size: int) -> None:
        kinds = components.split("+")
        self.free = list(range(pool_size // page_size * page_size))[::-1]
        self.freed: list[array[int]] = []  # by the tree, not yet back in the pool
        self.num_evicted = 0
        parts = [FullComponent(self.freed.append)]
        self.swa = SWAComponent(NoWindowPool(), WINDOW) if "swa" in kinds else None
        self.mamba = MambaComponent(States()) if "mamba" in kinds else None
        parts += [part for part in (self.swa, self.mamba) if part]
        self.window_pool_size = pool_size
        self.page_size = page_size
        self.tree = UnifiedRadixCache(page_size, parts)
        self.hits: list[int] = []
        self.times: list[int] = []

    def serve(self, tokens: array[int]) -> None:
        """Match, lock, evict what is missing, insert, unlock; only that is timed."""
        key, tree = RadixKey(tokens), self.tree
        num_pages = -(-len(tokens) // self.page_size)

        start = perf_counter_ns()
        match = tree.match_prefix(MatchPrefixParams(key))
        slots = match.device_indices
        receipt = tree.inc_lock_ref(match.last_device_node)
        elapsed = perf_counter_ns() - start

        num_new = num_pages * self.page_size - match.cached_len
        missing = self._missing(num_new)
        if missing:
            start = perf_counter_ns()
            tree.evict(missing)
            elapsed += perf_counter_ns() - start
        self.num_evicted += self._refill()
        new = self.free[len(self.free) - num_new :]
        del self.free[len(self.free) - num_new :]
        row = slots + array("i", new[: len(tokens) - match.cached_len])
        inserts = self._inserts(tokens, match, row)

        start = perf_counter_ns()
        owned_len = match.cached_len
        for params in inserts:
            params.prev_prefix_len = owned_len
            result = tree.insert(params)
            owned_len = len(params.key)
            for duplicate in result.duplicates:
                row[duplicate.start : duplicate.end] = duplicate.kept
            if params.mamba_value and result.mamba_exist:
                self.mamba.pool.free(params.mamba_value[0])
        tree.dec_lock_ref(receipt.node, receipt.to_dec_params())
        self.times.append(elapsed + perf_counter_ns() - start)

        self._refill()
        self.hits.append(match.cached_len)
        self.free += new[len(tokens) // self.page_size * self.page_size - len(slots) :]

    def _missing(self, num_new: int) -> EvictParams | None:
        num_tokens = num_new - len(self.free)
        num_window = num_states = 0
        if self.swa:
            num_held = self.swa.evictable_size + self.swa.protected_size
            num_window = num_held + num_new - self.window_pool_size
        if self.mamba:
            num_states = 2 - len(self.mamba.pool.free_slots)
        if num_tokens > 0 or num_window > 0 or num_states > 0:
            return EvictParams(num_tokens, num_window, num_states)
        return None

    def _refill(self) -> int:
        """Take freed slots back into the pool. Returns how many."""
        num_before = len(self.free)
        for slots in self.freed:
            self.free += slots
        self.freed.clear()
        return len(self.free) - num_before

    def _inserts(
        self, tokens: array[int], match: MatchResult, row: array[int]
    ) -> list[InsertParams]:
        """The whole prompt; with states, first as far as a branching point."""
        if not self.mamba:
            return [InsertParams(RadixKey(tokens), row)]
        aligned_len = len(tokens) // self.page_size * self.page_size
        lengths = {match.mamba_branching_seqlen or aligned_len, aligned_len}
        inserts = []
        for length in sorted(lengths):
            state = array("i", [self.mamba.pool.allocate()])
            key = RadixKey(tokens[:length])
            inserts.append(InsertParams(key, row, mamba_value=state))
        return inserts


@dataclass
class Row:
    """Results of one trace: for the radix tree, then for each set of components."""

    us_per_request: list[float]
    hits: list[int]
    evicted: list[int]


def compare(
    trace: Trace, page_size: int, rounds: int, advance: Callable[[], None]
) -> Row:
    """All of them in turn, `rounds` times; each request counts its least time.

    Raises AssertionError if the unified tree with Full alone hits or evicts otherwise
    than the radix tree.
    """
    times: list[list[list[int]]] = [[] for _ in range(1 + len(SETS))]
    for _ in range(rounds):
        radix = run_trace(Ours(page_size), trace, page_size, advance)
        times[0].append(radix.times_ns)
        hits, evicted = [sum(radix.hits)], [len(radix.evicted)]
        for number, components in enumerate(SETS, 1):
            run = UnifiedRun(components, page_size, trace.pool_size)
            for tokens in trace.prompts:
                run.serve(tokens)
                advance()
            times[number].append(run.times)
            hits.append(sum(run.hits))
            evicted.append(run.num_evicted)
        assert hits[0] == hits[1], f"trace {trace.name}: hits differ"
        assert evicted[0] == evicted[1], f"trace {trace.name}: evictions differ"
    least = [map(min, zip(*rounds_of_one, strict=True)) for rounds_of_one in times]
    return Row([mean(column) / 1000 for column in least], hits, evicted)


def measure_evict(components: str, num_leaves: int) -> float:
    """The time to evict one leaf of so many, in µs: the least of 500.

    The component that drives it is the last of the set.
    """
    run = UnifiedRun(components, 1, 2 * num_leaves)
    if run.mamba:
        run.mamba.pool.free_slots = list(range(num_leaves))
    for number in range(num_leaves):
        state = array("i", [run.mamba.pool.allocate()]) if run.mamba else None
        slots = array("i", [2 * number, 2 * number + 1])
        key = RadixKey(array("i", [number, 0]))
        run.tree.insert(InsertParams(key, slots, 0, 0, state))
    target = [EvictParams(1), EvictParams(0, 1), EvictParams(0, 0, 1)]
    params = target[run.tree.components[-1].component_type]
    times = []
    for _ in range(500):
        start = perf_counter_ns()
        run.tree.evict(params)
        times.append(perf_counter_ns() - start)
    return min(times) / 1000
