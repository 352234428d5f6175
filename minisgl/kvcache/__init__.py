"""The KV cache: where keys and values lie, and who may read and reuse them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from minisgl.errors import EngineConfigError

if TYPE_CHECKING:
    import torch

    from minisgl.kvcache.base import BasePrefixCache

# cache_type -> (module, class); loaded when asked for, since some need torch
PREFIX_CACHES = {
    "naive": ("minisgl.kvcache.naive_cache", "NaivePrefixCache"),
    "radix": ("minisgl.kvcache.radix_cache", "RadixPrefixCache"),
}


def create_prefix_cache(
    cache_type: str, device: torch.device, page_size: int
) -> BasePrefixCache:
    """Raises EngineConfigError for a cache type that is not in PREFIX_CACHES."""
    if cache_type not in PREFIX_CACHES:
        known = ", ".join(map(repr, PREFIX_CACHES))
        raise EngineConfigError(f"cache_type is {cache_type!r}; it must be {known}")
    module, name = PREFIX_CACHES[cache_type]
    return getattr(import_module(module), name)(device, page_size)
