"""The loop: admit, compute, tell, release."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minisgl.core import Req, SamplingParams
from minisgl.engine.engine import Engine
from minisgl.errors import EngineConfigError
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.decode import DecodeManager
from minisgl.scheduler.pages import PendingReq
from minisgl.scheduler.prefill import PrefillManager
from minisgl.scheduler.table import TableManager
from minisgl.scheduler.unified_cache import UnifiedCacheManager

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Reply:
    """One new token of one request."""

    uid: int
    token: int
    finish_reason: FinishReason | None  # None while more is to come
    prompt_len: int
    reused_len: int  # tokens of the prompt whose KV was in the cache


class Scheduler:
    """Runs many requests through one engine, a batch at a time (continuous batching;
    Yu et al., Orca, 2022).

    Requests join whenever there is room and leave when they end; the others do not
    wait for them. New prompts go before running answers. Raises EngineConfigError if
    `max_prefill_tokens` is below 1.
    """

    def __init__(
        self,
        engine: Engine,
        pages: CacheManager | UnifiedCacheManager,
        max_prefill_tokens: int = 8192,
    ) -> None:
        if type(max_prefill_tokens) is not int or max_prefill_tokens < 1:
            raise EngineConfigError(
                f"max_prefill_tokens is {max_prefill_tokens!r}; it must be 1 or more"
            )
        self.engine = engine
        self.pages = pages
        self.table = TableManager(engine.config.max_running_req)
        self.prefill = PrefillManager(self.table, pages, max_prefill_tokens)
        self.decode = DecodeManager(pages)
        self._next_uid = 0

    @property
    def is_idle(self) -> bool:
        return not self.prefill.pending and not self.decode.running

    def add(self, prompt: Sequence[int], params: SamplingParams) -> int:
        """Queue a request and return its uid.

        The answer ends after `params.max_tokens`, or earlier at the engine's longest
        length. Raises PromptError, and queues nothing, if the prompt cannot be served.
        """
        self.engine.check_prompt(prompt)
        output_len = min(params.max_tokens, self.engine.max_seq_len - len(prompt))
        self.pages.check_fits(len(prompt), output_len)
        uid = self._next_uid
        self._next_uid += 1
        self.prefill.add(PendingReq(uid, array("i", prompt), output_len, params))
        return uid

    def abort(self, uid: int) -> bool:
        """End a request now, without a reply; False if it has ended already."""
        if self.prefill.remove(uid):
            return True
        req = self.decode.remove(uid)
        if req is not None:
            self._release(req)
        return req is not None

    def step(self) -> list[Reply]:
        """Run one batch and return the tokens it gave; an empty list if idle."""
        batch = self.prefill.schedule_next_batch() or self.decode.schedule_next_batch()
        if batch is None:
            return []
        output = self.engine.forward_batch(batch)
        tokens = output.next_tokens.tolist()
        replies = [
            self._advance(req, token)
            for req, token in zip(batch.reqs, tokens, strict=True)
        ]
        if self.is_idle:
            self.pages.check_integrity()
        return replies

    def _advance(self, req: Req, token: int) -> Reply:
        req.append_host(token)
        reason = self._finish_reason(req, token)
        if reason is not None:
            self.decode.remove(req.uid)
            self._release(req)
        elif req.uid not in self.decode.running:  # its prompt was computed just now
            self.pages.cache_unfinished(req)
            self.decode.add(req)
        return Reply(req.uid, token, reason, req.prompt_len, req.reused_len)

    def _finish_reason(self, req: Req, token: int) -> FinishReason | None:
        if token in self.engine.eos_token_ids and not req.sampling_params.ignore_eos:
            return "stop"
        return None if req.can_decode else "length"

    def _release(self, req: Req) -> None:
        self.pages.release(req)
        self.table.free(req.table_idx)
