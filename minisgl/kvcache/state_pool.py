"""Recurrent states: what a request keeps in the layers that have no KV.

A state has the same size however long the request is, and stands for exactly one
length: the tokens that went into it can neither be taken out nor split off. So a prefix
is shared by copying its state, and a state that may be wanted later must be copied
while it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from minisgl.core import Batch
from minisgl.kvcache.page_allocator import PageAllocator

if TYPE_CHECKING:
    from minisgl.models.config import ModelConfig

LINEAR = "linear_attention"


@dataclass(frozen=True)
class StateShape:
    """The state of one request in all linear layers of a model."""

    num_layers: int
    conv_len: int  # tokens that the convolution looks back
    conv_dim: int
    num_heads: int
    key_dim: int
    value_dim: int

    @classmethod
    def of(cls, config: ModelConfig) -> StateShape:
        hf = config.hf
        keys = hf.linear_num_key_heads * hf.linear_key_head_dim
        values = hf.linear_num_value_heads * hf.linear_value_head_dim
        return cls(
            num_layers=config.layer_types.count(LINEAR),
            conv_len=hf.linear_conv_kernel_dim - 1,
            conv_dim=2 * keys + values,
            num_heads=hf.linear_num_value_heads,
            key_dim=hf.linear_key_head_dim,
            value_dim=hf.linear_value_head_dim,
        )

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one state, if the values of the convolution are kept in `dtype`."""
        conv = self.conv_len * self.conv_dim * dtype.itemsize
        recurrent = self.num_heads * self.key_dim * self.value_dim * 4
        return self.num_layers * (conv + recurrent)


class LayerState(NamedTuple):
    """States of one layer; with one slot, the first dimension is missing."""

    conv: torch.Tensor  # [slots, conv_len, conv_dim], the values of the last tokens
    recurrent: torch.Tensor  # [slots, heads, key_dim, value_dim], float32


class StatePool:
    """Slots for the states of requests, and for states kept for later."""

    def __init__(
        self,
        shape: StateShape,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_slots = num_slots
        self.allocator = PageAllocator(num_slots)  # a slot is a page of one state
        conv = (shape.num_layers, num_slots, shape.conv_len, shape.conv_dim)
        heads = (shape.num_heads, shape.key_dim, shape.value_dim)
        self._conv = torch.zeros(conv, dtype=dtype, device=device)
        # A sum over all tokens: 16 bits would forget the small ones
        self._recurrent = torch.zeros(
            (shape.num_layers, num_slots, *heads), dtype=torch.float32, device=device
        )

    # slots

    @property
    def num_free(self) -> int:
        return self.allocator.num_free

    def allocate(self) -> int | None:
        """A free slot, holding any old state; None if all are in use."""
        return self.allocator.allocate(1)[0] if self.num_free else None

    def free(self, slot: int) -> None:
        """Give a slot back. Raises PoolError if it is not in use."""
        self.allocator.free([slot])

    def reset(self) -> None:
        """All slots are free again."""
        self.allocator = PageAllocator(self.num_slots)

    # states

    def copy(self, source: int, target: int) -> None:
        """Overwrite the state in `target` with the one in `source`."""
        for buffer in (self._conv, self._recurrent):
            buffer[:, target] = buffer[:, source]

    def zero(self, slots: Sequence[int]) -> None:
        """Set states to that of a request of no tokens."""
        for buffer in (self._conv, self._recurrent):
            buffer[:, list(slots)] = 0

    def read(self, layer_id: int, slots: int | torch.Tensor) -> LayerState:
        """The states in one slot, a view, or in several, a copy."""
        return LayerState(self._conv[layer_id, slots], self._recurrent[layer_id, slots])

    def write(
        self, layer_id: int, slots: int | torch.Tensor, state: LayerState
    ) -> None:
        """Set the states in one slot or in several, as `read` gives them."""
        self._conv[layer_id, slots] = state.conv
        self._recurrent[layer_id, slots] = state.recurrent


class StatePiece(NamedTuple):
    """Tokens [begin, end) of a request's new ones; the state after goes to `slot`."""

    begin: int
    end: int
    slot: int


@dataclass
class StateSpan:
    """One request of a prefill batch: its new tokens are [start, end) of the batch."""

    start: int
    end: int
    slot: int
    pieces: list[StatePiece]


@dataclass
class StateMetadata:
    """Which states are whose, for all linear layers of a forward."""

    pool: StatePool
    slots: torch.Tensor  # [batch], int64
    spans: list[StateSpan]  # prefill only


def prepare_states(pool: StatePool, batch: Batch, device: torch.device) -> None:
    """Set `batch.state_metadata`; clear the state of requests that start from nothing.

    Each request's `mamba_pool_idx` holds the state after its `cached_len` tokens, and
    will hold the one after `device_len`. If `mamba_last_track_seqlen` lies in between,
    the state after that many tokens is left in `mamba_track_idx`.
    """
    slots = [req.mamba_pool_idx for req in batch.reqs]
    assert None not in slots, f"a request has no state: {batch.reqs}"
    fresh = [req.mamba_pool_idx for req in batch.reqs if req.cached_len == 0]
    if fresh:
        pool.zero(fresh)
    spans, start = [], 0
    for req in batch.reqs if batch.is_prefill else ():
        end = start + req.extend_len
        pieces = [StatePiece(0, req.extend_len, req.mamba_pool_idx)]
        track_len = req.mamba_last_track_seqlen - req.cached_len
        if req.mamba_track_idx is not None and 0 < track_len <= req.extend_len:
            pieces = [
                StatePiece(0, track_len, req.mamba_track_idx),
                StatePiece(track_len, req.extend_len, req.mamba_pool_idx),
            ]
        spans.append(StateSpan(start, end, req.mamba_pool_idx, pieces))
        start = end
    batch.state_metadata = StateMetadata(
        pool, torch.tensor(slots, device=device), spans
    )
