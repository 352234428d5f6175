"""What an engine keeps on the device for its requests, by the kinds of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from minisgl.attention.base import BaseAttnBackend
from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Req
from minisgl.engine.config import EngineConfig
from minisgl.errors import DeviceError, ModelError
from minisgl.kvcache.mha_pool import MHAKVPool, kv_bytes_per_token, pages_that_fit
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.config import ModelConfig

if TYPE_CHECKING:
    from minisgl.kvcache.state_pool import StatePool
    from minisgl.kvcache.swa_mapping import SWAMapping

# kind of layer that a model may have besides full attention -> (module, class)
POOLS = {
    "sliding_attention": ("minisgl.engine.sliding_pools", "SlidingPools"),
    "linear_attention": ("minisgl.engine.state_pools", "StatePools"),
}


class Pools:
    """The KV pool of a model whose layers all attend to everything.

    A model with other layers has a subclass, which keeps more on the device. Every
    request owns Full pages, and their number is what the rest of the engine counts in;
    what it owns besides is given to it by `extend` and taken away by `trim`.
    """

    num_pages: int  # of the Full pool
    kv_cache: Any
    attn_backend: BaseAttnBackend
    swa: SWAMapping | None = None  # set where there are sliding layers
    states: StatePool | None = None  # set where there are linear layers

    def __init__(
        self,
        config: EngineConfig,
        model: ModelConfig,
        tables: ReqTable,
        dtype: torch.dtype,
        budget: int,
    ) -> None:
        """Raises DeviceError if not even one page fits in `budget` bytes."""
        self.config = config
        self.model = model
        self.tables = tables
        self.dtype = dtype
        self.budget = budget
        self.allocate_memory()

    def allocate_memory(self) -> None:
        """Set the number of pages, the pool and the backend."""
        model = self.model
        self.num_pages = self.fit_pages(self.kv_bytes(model.num_layers))
        self.kv_cache = self.full_pool(model.num_layers)
        self.attn_backend = TorchBackend(
            self.kv_cache, self.tables.page_table, self.dtype
        )

    def extend(self, req: Req, full_slots: Sequence[int]) -> None:
        """A request was given these Full slots, whole pages, for its next forward.

        Raises PoolError, and gives nothing, if there is no room for what it needs
        besides.
        """

    def trim(self, req: Req) -> None:
        """After a forward: take back what a request, which shares nothing, will not
        read again."""

    def reset(self) -> None:
        """No request lives any more: take everything back."""

    # for `allocate_memory`

    def kv_bytes(self, num_layers: int) -> int:
        """Bytes that a token takes in `num_layers` layers of attention."""
        model = self.model
        return kv_bytes_per_token(
            num_layers, model.num_kv_heads, model.head_dim, self.dtype
        )

    def full_pool(self, num_layers: int) -> MHAKVPool:
        return MHAKVPool(
            num_layers=num_layers,
            num_kv_heads=self.model.num_kv_heads,
            head_dim=self.model.head_dim,
            num_pages=self.num_pages,
            page_size=self.config.page_size,
            dtype=self.dtype,
            device=self.tables.device,
        )

    def fit_pages(self, bytes_per_token: int, num_bytes_used: int = 0) -> int:
        """As many pages as are left room for, but no more than all rows can fill."""
        config = self.config
        if config.num_page_override is not None:
            return config.num_page_override
        budget = self.budget - num_bytes_used
        fit = pages_that_fit(budget, config.page_size, bytes_per_token)
        if fit < 1:
            raise DeviceError(
                f"a page of {config.page_size} tokens takes "
                f"{config.page_size * bytes_per_token} bytes, and {budget} are to be "
                "had; free some memory or raise memory_ratio"
            )
        num_rows, max_len = self.tables.page_table.shape
        return min(fit, num_rows * (max_len // config.page_size))


def create_pools(
    config: EngineConfig,
    model: ModelConfig,
    tables: ReqTable,
    dtype: torch.dtype,
    budget: int,
) -> Pools:
    """The pools for the kinds of layers that the model has, in `budget` bytes.

    Raises ModelError if there are none for that combination.
    """
    kinds = set(model.layer_types)
    others = kinds - {"full_attention"}
    if not others:
        return Pools(config, model, tables, dtype, budget)
    kind = min(others)
    if kind not in POOLS or kinds != {"full_attention", kind}:
        raise ModelError(
            f"the layers are {sorted(kinds)}; a model that is served has "
            f"'full_attention' and at most one of {', '.join(map(repr, POOLS))}"
        )
    module, name = POOLS[kind]
    return getattr(import_module(module), name)(config, model, tables, dtype, budget)
