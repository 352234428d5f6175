"""Llama: the plain decoder that the other dense models vary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minisgl.core import Batch
from minisgl.layers.attention import AttentionLayer
from minisgl.layers.linear import Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import RotaryEmbedding, Rotation
from minisgl.models.config import ModelConfig
from minisgl.models.weight import WeightReader


class GatedMLP:
    """down(silu(gate(x)) * up(x)); gate and up are stored as one matrix."""

    def __init__(
        self, config: ModelConfig, weights: WeightReader, prefix: str, bias: bool
    ) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        gate_up = [(f"{prefix}.gate_proj", inner), (f"{prefix}.up_proj", inner)]
        self.gate_up_proj = Linear.load(weights, gate_up, hidden, bias)
        self.down_proj = Linear.load(
            weights, [(f"{prefix}.down_proj", hidden)], inner, bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj.forward(x).chunk(2, dim=-1)
        return self.down_proj.forward(F.silu(gate).mul_(up))


@dataclass(frozen=True)
class LayerStyle:
    """The switches that tell the dense decoders apart."""

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


class DecoderLayer:
    """Attention, then MLP, each on a normalised copy and added back."""

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightReader,
        layer_id: int,
        style: LayerStyle,
    ) -> None:
        prefix = f"model.layers.{layer_id}"
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_norm = RMSNorm.load(weights, f"{prefix}.input_layernorm", size, eps)
        self.attention = AttentionLayer(
            config,
            weights,
            f"{prefix}.self_attn",
            layer_id,
            qkv_bias=style.qkv_bias,
            o_bias=style.o_bias,
            qk_norm=style.qk_norm,
        )
        self.post_norm = RMSNorm.load(
            weights, f"{prefix}.post_attention_layernorm", size, eps
        )
        self.mlp = GatedMLP(config, weights, f"{prefix}.mlp", style.mlp_bias)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.attention.forward(self.input_norm.forward(x), rotation)
        return x + self.mlp.forward(self.post_norm.forward(x))


class LlamaForCausalLM:
    """Token ids in, logits out."""

    def __init__(self, config: ModelConfig, weights: WeightReader) -> None:
        self.config = config
        vocab, hidden = config.vocab_size, config.hidden_size
        self.rotary = RotaryEmbedding(
            config.head_dim,
            config.max_position,
            config.rope,
            weights.dtype,
            weights.device,
        )
        style = self.style(config)
        self.embedding = weights.take("model.embed_tokens.weight", vocab, hidden)
        self.layers = [
            DecoderLayer(config, weights, layer_id, style)
            for layer_id in range(config.num_layers)
        ]
        self.norm = RMSNorm.load(weights, "model.norm", hidden, config.rms_norm_eps)
        # Some checkpoints are tied and hold the matrix a second time all the same.
        tied = config.tie_word_embeddings and not weights.has("lm_head.weight")
        self.lm_head = Linear(
            self.embedding if tied else weights.take("lm_head.weight", vocab, hidden)
        )

    @staticmethod
    def style(config: ModelConfig) -> LayerStyle:
        """A variant overrides this."""
        bias = config.hf.attention_bias
        return LayerStyle(qkv_bias=bias, o_bias=bias, mlp_bias=config.hf.mlp_bias)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits [len(batch.logit_indices) or num_tokens, vocab_size]."""
        x = F.embedding(batch.input_ids, self.embedding)
        rotation = self.rotary.at(batch.positions)
        for layer in self.layers:
            x = layer.forward(x, rotation)
        if batch.logit_indices is not None:
            x = x[batch.logit_indices]
        return self.lm_head.forward(self.norm.forward(x))
