"""The cache manager on a radix tree, with requests in any order and hardly any pages.

Requests come in, are computed at once or in slices, grow, end and are aborted, while
pages are evicted and used again all the time. Every slot remembers the whole prefix it
was computed for, so after each step each live request must find its own in its row.

It runs with a fixed set of examples. MINISGL_STATEFUL_EXAMPLES=2000 runs that many
random ones instead.
"""

from __future__ import annotations

import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from page_world import World

from minisgl.core import Req
from minisgl.kvcache.page_allocator import pages_of_slots
from minisgl.kvcache.radix_cache import RadixPrefixCache

EXAMPLES = int(os.environ.get("MINISGL_STATEFUL_EXAMPLES", "0"))
BUDGET = settings(
    max_examples=EXAMPLES or 40,
    derandomize=not EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    database=None,
    report_multiple_bugs=False,  # one is enough, and found sooner
    suppress_health_check=list(HealthCheck),
)

tokens = st.integers(0, 2)
some = st.integers(1, 4)


class CacheManagerMachine(RuleBasedStateMachine):
    page_size = 1
    num_pages = 12

    def __init__(self) -> None:
        super().__init__()
        cache = RadixPrefixCache(torch.device("cpu"), self.page_size)
        self.world = World(self.num_pages, self.page_size, cache, num_rows=4)
        self.admitted: list[Req] = []  # their prompts are not computed yet
        self.running: list[Req] = []

    # --- what may happen ----------------------------------------------------------

    @precondition(lambda self: self.world.table.num_free)
    @rule(
        prompt=st.lists(tokens, min_size=1, max_size=10),
        output_len=st.integers(1, 5),
        max_tokens=st.sampled_from([3, 100]),
    )
    def admit(self, prompt: list[int], output_len: int, max_tokens: int) -> None:
        if not self.world.pages.fits_pool(len(prompt) + output_len):
            return
        req = self.world.admit(prompt, output_len, max_tokens)
        if req is not None:
            assert req.cached_len % self.page_size == 0
            assert req.extend_len <= max_tokens
            self.admitted.append(req)
        elif max_tokens == 100:
            assert self.world.pages.live, "it was alone, it fits, and was refused"

    @precondition(lambda self: self.admitted)
    @rule(count=some, slice_len=st.none() | some, token=tokens)
    def prefill(self, count: int, slice_len: int | None, token: int) -> None:
        batch, self.admitted = self.admitted[:count], self.admitted[count:]
        if slice_len is not None:
            for req in batch:
                req.limit_chunk(slice_len)
        self.world.forward(*batch, token=token)
        for req in batch:
            if not req.can_decode:
                self.world.release(req)
                continue
            self.world.pages.cache_unfinished(req)
            in_prompt = req.cached_len < req.prompt_len
            (self.admitted if in_prompt else self.running).append(req)

    @precondition(lambda self: self.running)
    @rule(first=st.integers(0, 3), token=tokens)
    def decode(self, first: int, token: int) -> None:
        batch = self.running[first % len(self.running) :]
        self.world.forward(*batch, token=token)
        for req in batch:
            if not req.can_decode:
                self.running.remove(req)
                self.world.release(req)

    @precondition(lambda self: self.world.pages.live)
    @rule(index=st.integers(0, 3))
    def end_early(self, index: int) -> None:
        """EOS, or an abort at any point of its life."""
        live = list(self.world.pages.live.values())
        req = live[index % len(live)]
        for group in (self.admitted, self.running):
            if req in group:
                group.remove(req)
        self.world.release(req)

    @rule(num_pages=some)
    def evict(self, num_pages: int) -> None:
        evictable = self.world.sizes[1] // self.page_size
        size = min(num_pages, evictable) * self.page_size
        slots = self.world.cache.evict(size).tolist()
        self.world.pages.allocator.free(pages_of_slots(slots, self.page_size))

    # --- what must always hold ----------------------------------------------------

    @invariant()
    def every_request_reads_its_own_prefix_and_every_page_is_in_one_place(self) -> None:
        self.world.check()

    @invariant()
    def what_requests_reuse_and_nothing_else_is_protected(self) -> None:
        reused = {
            slot
            for req in self.world.pages.live.values()
            for slot in req.cache_handle.matched_slots()
        }
        assert self.world.sizes[2] == len(reused)

    @invariant()
    def what_was_promised_can_be_had(self) -> None:
        assert self.world.pages.num_reserved <= self.world.pages.num_available

    def teardown(self) -> None:
        self.world.release(*list(self.world.pages.live.values()))
        self.world.check()
        assert self.world.sizes[2] == 0


@pytest.mark.parametrize(
    ("page_size", "num_pages"), [(1, 12), (1, 24), (2, 6), (2, 12), (4, 4), (4, 7)]
)
def test_any_life_of_any_request_leaves_every_page_in_its_place(
    page_size: int, num_pages: int
):
    class Machine(CacheManagerMachine):
        pass

    Machine.page_size, Machine.num_pages = page_size, num_pages
    run_state_machine_as_test(Machine, settings=BUDGET)
