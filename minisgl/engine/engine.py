"""One forward: batch in, next tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minisgl.core import Batch, Context
from minisgl.device import free_memory, pick_device
from minisgl.engine.config import EngineConfig, load_eos_token_ids
from minisgl.engine.pools import create_pools
from minisgl.engine.sample import Sampler
from minisgl.errors import PromptError
from minisgl.kvcache.page_allocator import num_pages_for
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.registry import load_model


@dataclass
class ForwardOutput:
    """`next_tokens` [requests that were sampled], int64, on the engine's device."""

    next_tokens: torch.Tensor


class Engine:
    """Owns what lives on the device: the model, the KV pool and the request tables.

    It decides nothing: who runs, in which row and on which pages is the caller's
    affair. Raises a MiniSGLError for settings, a device or a model that cannot be used.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.device = pick_device(config.device)
        on_gpu = self.device.type == "cuda"
        self.dtype = config.dtype or (torch.bfloat16 if on_gpu else torch.float32)
        self.model = load_model(config.model_path, self.dtype, self.device)
        self.model_config = self.model.config
        self.eos_token_ids = load_eos_token_ids(config.model_path)
        self.max_seq_len = min(
            config.max_seq_len_override or self.model_config.max_position,
            self.model_config.max_position,
        )
        self.tables = ReqTable(
            config.max_running_req,
            num_pages_for(self.max_seq_len, config.page_size) * config.page_size,
            self.device,
        )
        budget = int(free_memory(self.device) * config.memory_ratio)
        self.pools = create_pools(
            config, self.model_config, self.tables, self.dtype, budget
        )
        self.num_pages = self.pools.num_pages
        self.kv_cache = self.pools.kv_cache
        self.ctx = Context(page_size=config.page_size)
        self.ctx.page_table = self.tables.page_table
        self.ctx.kv_cache = self.kv_cache
        self.ctx.attn_backend = self.pools.attn_backend
        self.sampler = Sampler()

    @torch.inference_mode()
    def forward_batch(self, batch: Batch) -> ForwardOutput:
        """Compute the batch, sample, and move the requests' lengths on.

        The tables hold every request's tokens and slots up to `device_len` by now. The
        sampled tokens are in the token pool afterwards, but not in `Req.input_ids`:
        the caller appends them when it has read them.
        """
        self.tables.fill_batch(batch)
        self.ctx.attn_backend.prepare_metadata(batch)
        with self.ctx.forward_batch(batch):
            logits = self.model.forward(batch)
        next_tokens = self.sampler.sample(logits, batch.sampled_reqs)
        self.tables.write_next_tokens(batch, next_tokens)
        for req in batch.reqs:
            if req.is_chunk:
                req.complete_chunk()
            else:
                req.complete_one()
        return ForwardOutput(next_tokens)

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Raises PromptError if the engine cannot answer this prompt."""
        if len(prompt) == 0:
            raise PromptError("the prompt is empty; it needs at least one token")
        if len(prompt) >= self.max_seq_len:
            raise PromptError(
                f"the prompt has {len(prompt)} tokens; at most {self.max_seq_len - 1} "
                f"fit, since a request may have {self.max_seq_len} with its answer"
            )
        vocab_size = self.model_config.vocab_size
        for token in prompt:
            if type(token) is not int or not 0 <= token < vocab_size:
                raise PromptError(
                    f"{token!r} is not a token id; they are 0 to {vocab_size - 1}"
                )
