"""Requests driven through an engine by hand: several at once, slice by slice."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from minisgl.core import Batch, Req, SamplingParams
from minisgl.engine.engine import Engine
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    pages_of_slots,
    slots_of_pages,
)


class Driver:
    """Gives rows, pages and what the pools ask for; nothing is shared or evicted."""

    def __init__(
        self, engine: Engine, between_steps: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        self.page_size = engine.config.page_size
        self.allocator = PageAllocator(engine.num_pages)
        self.rows = list(range(engine.config.max_running_req))
        self.between_steps = between_steps
        engine.pools.reset()

    def start(self, prompt: list[int], max_tokens: int) -> Req:
        row = self.rows.pop()
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        req = Req(
            array("i", prompt), row, 0, max_tokens, uid=row, sampling_params=params
        )
        self.engine.tables.write_tokens(row, 0, prompt)
        return req

    def prefill(self, *reqs: Req, chunk: int | None = None) -> None:
        """Compute the prompts, all in the same batches, `chunk` tokens of each."""
        while reqs:
            for req in reqs:
                if chunk is not None:
                    req.limit_chunk(chunk)
            chunks = [req for req in reqs if req.is_chunk]
            self.step(*reqs, phase="prefill")
            reqs = tuple(chunks)

    def decode(self, *reqs: Req) -> None:
        self.step(*reqs, phase="decode")

    def step(self, *reqs: Req, phase: str) -> None:
        for req in reqs:
            self._extend(req)
        batch = Batch(list(reqs), phase)
        sampled = batch.sampled_reqs
        tokens = self.engine.forward_batch(batch).next_tokens.tolist()
        for req, token in zip(sampled, tokens, strict=True):
            req.append_host(token)
        for req in reqs:
            self.engine.pools.trim(req)
        if self.between_steps is not None:
            self.between_steps()

    def finish(self, req: Req) -> list[int]:
        """Give back all that the request holds; returns its answer."""
        slots = self.slots(req)
        if self.engine.pools.swa is not None:
            self.engine.pools.swa.free(slots)
        states = getattr(self.engine.pools, "states", None)  # from chapter 13 on
        if states is not None:
            states.free(req.mamba_pool_idx)
        self.allocator.free(pages_of_slots(slots, self.page_size))
        self.rows.append(req.table_idx)
        return list(req.input_ids[req.prompt_len :])

    def answer(
        self, prompt: list[int], max_tokens: int, chunk: int | None = None
    ) -> list[int]:
        """One request from its prompt to its last token."""
        req = self.start(prompt, max_tokens)
        self.prefill(req, chunk=chunk)
        while req.can_decode:
            self.decode(req)
        return self.finish(req)

    def slots(self, req: Req) -> array[int]:
        """The Full slots of all pages of the request."""
        end = num_pages_for(req.cached_len, self.page_size) * self.page_size
        return self.engine.tables.read_slots(req.table_idx, 0, end)

    def _extend(self, req: Req) -> None:
        held = num_pages_for(req.cached_len, self.page_size)
        missing = num_pages_for(req.device_len, self.page_size) - held
        slots = slots_of_pages(self.allocator.allocate(missing), self.page_size)
        start = held * self.page_size
        self.engine.tables.write_slots(req.table_idx, start, slots)
        self.engine.pools.extend(req, slots)
