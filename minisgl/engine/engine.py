"""One forward: batch in, next tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Batch, Context
from minisgl.device import free_memory, pick_device
from minisgl.engine.config import EngineConfig, load_eos_token_ids
from minisgl.engine.sample import Sampler
from minisgl.errors import DeviceError, PromptError
from minisgl.kvcache.mha_pool import MHAKVPool, kv_bytes_per_token, pages_that_fit
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
        self.num_pages = config.num_page_override or self._pages_that_fit()
        self.kv_cache = MHAKVPool(
            num_layers=self.model_config.num_layers,
            num_kv_heads=self.model_config.num_kv_heads,
            head_dim=self.model_config.head_dim,
            num_pages=self.num_pages,
            page_size=config.page_size,
            dtype=self.dtype,
            device=self.device,
        )
        self.tables = ReqTable(
            config.max_running_req,
            num_pages_for(self.max_seq_len, config.page_size) * config.page_size,
            self.device,
        )
        self.ctx = Context(page_size=config.page_size)
        self.ctx.page_table = self.tables.page_table
        self.ctx.kv_cache = self.kv_cache
        self.ctx.attn_backend = TorchBackend(
            self.kv_cache, self.tables.page_table, self.dtype
        )
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

    def _pages_that_fit(self) -> int:
        """As many pages as memory allows, but no more than all rows can fill."""
        config, model = self.config, self.model_config
        per_token = kv_bytes_per_token(
            model.num_layers, model.num_kv_heads, model.head_dim, self.dtype
        )
        budget = int(free_memory(self.device) * config.memory_ratio)
        fit = pages_that_fit(budget, config.page_size, per_token)
        if fit == 0:
            raise DeviceError(
                f"a page of {config.page_size} tokens takes "
                f"{config.page_size * per_token} bytes, and {budget} are to be had; "
                "free some memory or raise memory_ratio"
            )
        usable = num_pages_for(self.max_seq_len, config.page_size)
        return min(fit, config.max_running_req * usable)
