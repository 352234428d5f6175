"""The paged KV pool: one buffer for the keys and values of all requests."""

from __future__ import annotations

import torch

from minisgl.errors import PoolError


class MHAKVPool:
    """Keys and values of every layer, addressed by slot.

    A page is `page_size` neighbouring slots, and slot = page * page_size + offset holds
    the key and value of one token. Both buffers are made once and never grow.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if num_pages < 1:
            raise PoolError(f"a pool needs at least one page; num_pages is {num_pages}")
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (num_layers, num_pages * page_size, num_kv_heads, head_dim)
        k = torch.zeros(shape, dtype=dtype, device=device)
        v = torch.zeros(shape, dtype=dtype, device=device)
        # views of one layer each, [slots, kv_heads, head_dim]
        self._k_layers = k.unbind(0)
        self._v_layers = v.unbind(0)

    def k_cache(self, layer_id: int) -> torch.Tensor:
        """[slots, kv_heads, head_dim], a view."""
        return self._k_layers[layer_id]

    def v_cache(self, layer_id: int) -> torch.Tensor:
        """[slots, kv_heads, head_dim], a view."""
        return self._v_layers[layer_id]

    def store_kv(
        self, k: torch.Tensor, v: torch.Tensor, out_loc: torch.Tensor, layer_id: int
    ) -> None:
        """Write k, v [tokens, kv_heads, head_dim] to the slots `out_loc` [tokens]."""
        self._k_layers[layer_id].index_copy_(0, out_loc, k)
        self._v_layers[layer_id].index_copy_(0, out_loc, v)


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> int:
    """Bytes that one token takes in the pool: a key and a value in every layer."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize


def pages_that_fit(num_bytes: int, page_size: int, bytes_per_token: int) -> int:
    """Whole pages that fit in `num_bytes`."""
    return num_bytes // (page_size * bytes_per_token)
