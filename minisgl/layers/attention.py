"""The attention layer of a decoder: projections around an attention backend."""

from __future__ import annotations

import torch

from minisgl.core import get_global_ctx
from minisgl.layers.linear import Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import Rotation, rotate
from minisgl.models.config import ModelConfig
from minisgl.models.weight import WeightReader


class AttentionLayer:
    """Project to heads, rotate, let the backend of the context attend, project back.

    Query heads come in groups that share a key-value head (GQA, Ainslie et al., 2023).
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightReader,
        prefix: str,
        layer_id: int,
        *,
        qkv_bias: bool,
        o_bias: bool,
        qk_norm: bool,
    ) -> None:
        dim, hidden, eps = config.head_dim, config.hidden_size, config.rms_norm_eps
        self.layer_id = layer_id
        self.head_dim = dim
        self.num_qo_heads = config.num_qo_heads
        self.num_kv_heads = config.num_kv_heads
        q_size, kv_size = self.num_qo_heads * dim, self.num_kv_heads * dim
        self.qkv_proj = Linear.load(
            weights,
            [
                (f"{prefix}.q_proj", q_size),
                (f"{prefix}.k_proj", kv_size),
                (f"{prefix}.v_proj", kv_size),
            ],
            hidden,
            qkv_bias,
        )
        self.o_proj = Linear.load(
            weights, [(f"{prefix}.o_proj", hidden)], q_size, o_bias
        )
        self.q_norm = self.k_norm = None
        if qk_norm:
            self.q_norm = RMSNorm.load(weights, f"{prefix}.q_norm", dim, eps)
            self.k_norm = RMSNorm.load(weights, f"{prefix}.k_norm", dim, eps)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """[tokens, hidden] -> the same shape."""
        ctx = get_global_ctx()
        num_qk = self.num_qo_heads + self.num_kv_heads
        heads = self.qkv_proj.forward(x).view(len(x), -1, self.head_dim)
        qk, v = heads[:, :num_qk], heads[:, num_qk:]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = qk[:, : self.num_qo_heads], qk[:, self.num_qo_heads :]
            qk = torch.cat([self.q_norm.forward(q), self.k_norm.forward(k)], dim=1)
        qk = rotate(qk, rotation)  # queries and keys in one go
        q, k = qk[:, : self.num_qo_heads], qk[:, self.num_qo_heads :]
        out = ctx.attn_backend.forward(q, k, v, self.layer_id, ctx.batch)
        return self.o_proj.forward(out.view(len(x), -1))
