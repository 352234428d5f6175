"""A backend for models in which only some layers attend; the others have states."""

from __future__ import annotations

import torch

from minisgl.attention.base import BaseAttnBackend
from minisgl.core import Batch
from minisgl.kvcache.state_pool import StatePool, prepare_states


class StateSpaceBackend(BaseAttnBackend):
    """Full layers as `full` does them; linear layers find `batch.state_metadata`."""

    def __init__(
        self, full: BaseAttnBackend, states: StatePool, device: torch.device
    ) -> None:
        self.full = full
        self.states = states
        self.device = device

    def prepare_metadata(self, batch: Batch) -> None:
        self.full.prepare_metadata(batch)
        prepare_states(self.states, batch, self.device)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        batch: Batch,
    ) -> torch.Tensor:
        return self.full.forward(q, k, v, layer_id, batch)
