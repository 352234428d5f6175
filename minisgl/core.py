"""The words every other module speaks: a request, a batch, and their context.

The lengths of a request cut its tokens into three half-open intervals:

    0 ............ cached_len ............ device_len ............ max_device_len
    |  KV in pool  |  next forward computes |  not known yet       |

`cached_len` tokens have their KV in the pool. The next forward computes the tokens
`[cached_len, device_len)`. A request may grow to `max_device_len` tokens.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from minisgl.errors import ContextError, SamplingParamsError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token, and when to stop.

    `temperature` 0 takes the most likely token. `top_k` -1 keeps the whole vocabulary.
    With a `seed`, a request draws the same numbers whatever shares its batch; without
    one they differ from run to run.

    Raises SamplingParamsError when a value is out of range.
    """

    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    ignore_eos: bool = False
    max_tokens: int = 1024
    seed: int | None = None

    def __post_init__(self) -> None:
        temperature, top_p = self.temperature, self.top_p
        if not (_is_number(temperature) and 0 <= temperature <= sys.float_info.max):
            raise _bad("temperature", temperature, "a finite number, 0 or more")
        if not (_is_int(self.top_k) and (self.top_k == -1 or self.top_k >= 1)):
            raise _bad("top_k", self.top_k, "-1 (keep all) or an integer from 1 up")
        if not (_is_number(top_p) and 0 < top_p <= 1):
            raise _bad("top_p", top_p, "a number above 0 and at most 1")
        if not isinstance(self.ignore_eos, bool):
            raise _bad("ignore_eos", self.ignore_eos, "True or False")
        if not (_is_int(self.max_tokens) and self.max_tokens >= 1):
            raise _bad("max_tokens", self.max_tokens, "an integer from 1 up")
        if not (self.seed is None or (_is_int(self.seed) and self.seed >= 0)):
            raise _bad("seed", self.seed, "None or an integer from 0 up")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


@dataclass(eq=False)
class Req:
    """One request on its way through the engine.

    `input_ids` holds the prompt and then what was generated, as 32-bit integers on the
    host. `table_idx` is the request's row in the page table, `output_len` the most
    tokens it may generate, and `cached_len` how much of the prompt has its KV in the
    pool already. At least one token is left to compute: only its logits give a token.
    """

    input_ids: array[int]
    table_idx: int
    cached_len: int
    output_len: int
    uid: int
    sampling_params: SamplingParams
    cache_handle: Any = None
    swa_evicted_seqlen: int = 0  # tokens, in whole pages, without a window slot
    mamba_pool_idx: int | None = None  # slot of its recurrent state
    mamba_track_idx: int | None = None  # slot for a copy of the state, taken midway,
    mamba_last_track_seqlen: int = 0  # after this many tokens

    def __post_init__(self) -> None:
        self.prompt_len = len(self.input_ids)
        self.reused_len = self.cached_len  # tokens of the prompt it never computes
        self.device_len = self.prompt_len
        self.max_device_len = self.prompt_len + self.output_len
        assert self.input_ids.typecode == "i", self.input_ids.typecode
        assert 0 <= self.cached_len < self.device_len <= self.max_device_len, self

    @property
    def extend_len(self) -> int:
        """Tokens that the next forward computes."""
        return self.device_len - self.cached_len

    @property
    def remain_len(self) -> int:
        """Tokens that may still be generated."""
        return self.max_device_len - self.device_len

    @property
    def can_decode(self) -> bool:
        return self.remain_len > 0

    @property
    def is_chunk(self) -> bool:
        """Whether the next forward stops inside the prompt, and so gives no token."""
        return self.device_len < self.prompt_len

    def limit_chunk(self, max_tokens: int) -> None:
        """Let the next forward compute at most `max_tokens` (>= 1) of the prompt."""
        assert max_tokens >= 1 and self.cached_len < self.prompt_len
        self.device_len = min(self.cached_len + max_tokens, self.prompt_len)

    def complete_chunk(self) -> None:
        """A slice of the prompt was computed; the rest of it comes next."""
        assert self.is_chunk, "complete_chunk is for a slice that ends in the prompt"
        self.cached_len = self.device_len
        self.device_len = self.prompt_len

    def complete_one(self) -> None:
        """All known tokens were computed and one was sampled; that one comes next."""
        assert not self.is_chunk, "a slice of a prompt samples nothing"
        self.cached_len = self.device_len
        self.device_len += 1

    def append_host(self, token: int) -> None:
        """Note on the host which token was sampled."""
        self.input_ids.append(token)

    def __repr__(self) -> str:
        lens = f"{self.cached_len}/{self.device_len}/{self.max_device_len}"
        return f"Req(uid={self.uid}, row={self.table_idx}, cached/device/max={lens})"


@dataclass(eq=False)
class Batch:
    """Requests that go through one forward together.

    A decode batch computes exactly one token per request; a prefill batch computes one
    or more. Tokens of all requests lie behind one another, without padding:
    `num_tokens` = the sum of the requests' `extend_len`.
    """

    reqs: list[Req]
    phase: Literal["prefill", "decode"]
    # filled in before the forward, one entry per token:
    input_ids: torch.Tensor = field(init=False, repr=False)  # token ids
    positions: torch.Tensor = field(init=False, repr=False)  # place in the request
    out_loc: torch.Tensor = field(init=False, repr=False)  # slot its KV is written to
    # which tokens need logits: the last of each sampled request (None: all tokens)
    logit_indices: torch.Tensor | None = field(init=False, repr=False, default=None)
    # whatever the attention backend wants to compute once for all layers
    attn_metadata: Any = field(init=False, repr=False, default=None)
    # whose recurrent state lies where, in a model that has them
    state_metadata: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        assert self.reqs, "a batch needs a request"
        if self.is_decode:
            assert all(r.extend_len == 1 for r in self.reqs), self.reqs

    @property
    def is_prefill(self) -> bool:
        return self.phase == "prefill"

    @property
    def is_decode(self) -> bool:
        return self.phase == "decode"

    @property
    def size(self) -> int:
        return len(self.reqs)

    @property
    def num_tokens(self) -> int:
        return sum(r.extend_len for r in self.reqs)

    @property
    def sampled_reqs(self) -> list[Req]:
        """The requests that get a token from this forward: all but prompt slices."""
        return [r for r in self.reqs if not r.is_chunk]


@dataclass(eq=False)
class Context:
    """What the layers of a model need to know and are not handed: where KV lives.

    Layers find the context of the running forward with `get_global_ctx()`. An engine
    enters its own for the length of a forward, so several engines can live side by
    side; a script that works by hand sets one with `set_global_ctx`.
    """

    page_size: int = 1
    page_table: torch.Tensor = field(init=False, repr=False)  # [rows, max_len] slots
    kv_cache: Any = field(init=False, repr=False, default=None)
    attn_backend: Any = field(init=False, repr=False, default=None)
    _batch: Batch | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not (_is_int(self.page_size) and self.page_size >= 1):
            raise ContextError(f"page_size is {self.page_size!r}; it must be 1 or more")

    @property
    def batch(self) -> Batch:
        """The batch of the running forward."""
        if self._batch is None:
            raise ContextError("no forward is running; use 'with ctx.forward_batch(b)'")
        return self._batch

    @contextmanager
    def forward_batch(self, batch: Batch) -> Iterator[None]:
        """Make this the global context, and `batch` its batch, inside a `with`."""
        global _ctx
        if self._batch is not None:
            raise ContextError("this context is already running a forward")
        outer, _ctx, self._batch = _ctx, self, batch
        try:
            yield
        finally:
            _ctx, self._batch = outer, None


_ctx: Context | None = None


def set_global_ctx(ctx: Context) -> None:
    """Set the global context by hand. Raises ContextError if there is one already."""
    global _ctx
    if _ctx is not None:
        raise ContextError("a global context is set; call reset_global_ctx() first")
    _ctx = ctx


def get_global_ctx() -> Context:
    """The context of the running forward, or the one set by hand."""
    if _ctx is None:
        raise ContextError("no global context; call set_global_ctx(Context(...)) first")
    return _ctx


def reset_global_ctx() -> None:
    """Forget the context that was set by hand."""
    global _ctx
    _ctx = None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bad(name: str, value: object, allowed: str) -> SamplingParamsError:
    return SamplingParamsError(f"{name} is {value!r}; it must be {allowed}")
