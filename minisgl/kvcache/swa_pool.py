"""The KV pool of a model in which only some layers need the whole context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.swa_mapping import NO_PAGE, SWAMapping

SLIDING = "sliding_attention"


class LayerPlace(NamedTuple):
    """Where the KV of a layer lies."""

    is_sliding: bool  # in the window pool, not in the Full one
    index: int  # the layer's number in that pool


class SWAKVPool:
    """A pool of Full slots for the full layers, one of window slots for the others.

    `mapping` says on the host which window page goes with which Full page, and
    `full_to_swa` [Full slots] the same on the device, slot by slot, as of the last
    `sync()`.
    """

    def __init__(
        self,
        *,
        layer_types: Sequence[str],
        num_kv_heads: int,
        head_dim: int,
        num_pages: int,
        num_swa_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.places = layer_places(layer_types)
        num_sliding = sum(place.is_sliding for place in self.places)
        shape = dict(
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            dtype=dtype,
            device=device,
        )
        num_full = len(self.places) - num_sliding
        self.full = MHAKVPool(num_layers=num_full, num_pages=num_pages, **shape)
        self.window = MHAKVPool(
            num_layers=num_sliding, num_pages=num_swa_pages, **shape
        )
        self.mapping = SWAMapping(num_pages, num_swa_pages, page_size)
        self.full_to_swa = torch.full(
            (num_pages * page_size,), NO_PAGE, dtype=torch.int64, device=device
        )

    def sync(self) -> None:
        """Tell the device what has changed in the mapping; once before each forward."""
        changed = self.mapping.take_changes()
        if not changed:
            return
        pages = torch.tensor([changed, self.mapping.swa_pages(changed)])
        full_pages, swa_pages = pages.to(self.full_to_swa.device)
        page_size = self.mapping.page_size
        offset = torch.arange(page_size, device=self.full_to_swa.device)
        slots = swa_pages[:, None] * page_size + offset
        slots.masked_fill_(swa_pages[:, None] == NO_PAGE, NO_PAGE)
        self.full_to_swa.view(-1, page_size)[full_pages] = slots


def layer_places(layer_types: Sequence[str]) -> list[LayerPlace]:
    """Number the sliding layers among themselves, and so the others."""
    places, counts = [], {True: 0, False: 0}
    for kind in layer_types:
        is_sliding = kind == SLIDING
        places.append(LayerPlace(is_sliding, counts[is_sliding]))
        counts[is_sliding] += 1
    return places
