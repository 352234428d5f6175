"""What is to be seen of a unified cache while an engine serves from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving import Arrival, Served, new_llm

from minisgl.kvcache.unified import ComponentType, EvictParams
from minisgl.llm import LLM

POOL = 128  # tokens: room for about three of the requests
EVERYTHING = 1_000_000


def unified_llm(
    model_dir: Path, page_size: int = 1, pool: int = POOL, **more: Any
) -> LLM:
    settings = dict(page_size=page_size, num_page_override=pool // page_size)
    return new_llm(model_dir, cache_type="unified", **settings, **more)


def watch_evictions(llm: LLM) -> Counter[ComponentType]:
    """Units that went because their own component ran short, from now on."""
    evicted: Counter[ComponentType] = Counter()

    def watch(component: Any) -> None:
        kind, drive = component.component_type, component.drive_eviction

        def drive_eviction(params: EvictParams, tracker: list[int]) -> None:
            before = tracker[kind]
            drive(params, tracker)
            evicted[kind] += tracker[kind] - before

        component.drive_eviction = drive_eviction

    for component in llm.scheduler.pages.cache.components:
        watch(component)
    return evicted


def assert_all_is_accounted_for(llm: LLM) -> None:
    """Nothing runs: no lock is out, no row is taken, and all that the tree holds can
    be evicted, after which every pool is free."""
    pages = llm.scheduler.pages
    pools = getattr(llm.engine, "pools", None)  # from chapter 12 on
    assert not pages.cache.receipts
    for component in pages.cache.components:
        assert component.protected_size == 0, component.component_type
    assert llm.scheduler.table.num_free == llm.engine.config.max_running_req
    pages.check_integrity()
    assert pages.num_available == pages.allocator.num_pages
    pages.cache.evict(EvictParams(EVERYTHING, EVERYTHING, EVERYTHING))
    assert not list(pages.cache.nodes())
    assert pages.allocator.num_free == pages.allocator.num_pages
    for pool in (getattr(pools, "swa", None), getattr(pools, "states", None)):
        if pool is not None:
            assert pool.num_free == pool.allocator.num_pages


def assert_answers(served: Served, traffic: Sequence[Arrival]) -> None:
    """Every request got its answer, or the beginning of it if it was aborted."""
    for index, arrival in enumerate(traffic):
        tokens, expected = served.tokens[index], arrival.answer
        if served.reasons[index] == "abort":
            expected = expected[: len(tokens)]
        assert tokens == expected, f"request {index}: {tokens}, not {expected}"


def random_aborts(traffic: Sequence[Arrival], start: int) -> dict[int, int]:
    """Every third request ends within its first steps; some before they start."""
    return {i: traffic[i].step + i % 7 for i in range(start, len(traffic), 3)}
