"""Gemma 3, text (Gemma Team, "Gemma 3 Technical Report", 2025).

Most layers see a window of a few hundred tokens, and every sixth or so sees everything.
So the memory and the work of a long context fall on those few alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.core import Batch
from minisgl.errors import ModelError
from minisgl.layers.attention import AttentionLayer
from minisgl.layers.centered_norm import CenteredRMSNorm
from minisgl.layers.linear import Linear
from minisgl.layers.rotary import RotaryEmbedding, Rotation
from minisgl.models.config import ModelConfig, rope_from_hf
from minisgl.models.llama import GatedMLP
from minisgl.models.weight import WeightReader

ACTIVATION = "gelu_pytorch_tanh"
LAYER_TYPES = ("sliding_attention", "full_attention")


class Gemma3Attention(AttentionLayer):
    """Normalised queries and keys, and a scale of its own.

    Backends divide the scores by sqrt(head_dim); Gemma divides by
    sqrt(query_pre_attn_scalar). The norm of the queries makes up for the difference.
    """

    def __init__(
        self, config: ModelConfig, weights: WeightReader, prefix: str, layer_id: int
    ) -> None:
        bias = config.hf.attention_bias
        super().__init__(
            config,
            weights,
            prefix,
            layer_id,
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=False,
        )
        dim, eps = config.head_dim, config.rms_norm_eps
        scale = (dim / config.hf.query_pre_attn_scalar) ** 0.5
        self.q_norm = CenteredRMSNorm.load(
            weights, f"{prefix}.q_norm", dim, eps, scale
        )
        self.k_norm = CenteredRMSNorm.load(weights, f"{prefix}.k_norm", dim, eps)


class Gemma3MLP(GatedMLP):
    """down(gelu(gate(x)) * up(x))"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj.forward(x).chunk(2, dim=-1)
        return self.down_proj.forward(F.gelu(gate, approximate="tanh").mul_(up))


class Gemma3DecoderLayer:
    """Attention, then MLP, each normalised on the way in and on the way out."""

    def __init__(
        self, config: ModelConfig, weights: WeightReader, layer_id: int
    ) -> None:
        prefix = f"model.layers.{layer_id}"

        def norm(name: str) -> CenteredRMSNorm:
            size, eps = config.hidden_size, config.rms_norm_eps
            return CenteredRMSNorm.load(weights, f"{prefix}.{name}", size, eps)

        self.pre_attention_norm = norm("input_layernorm")
        self.attention = Gemma3Attention(
            config, weights, f"{prefix}.self_attn", layer_id
        )
        self.post_attention_norm = norm("post_attention_layernorm")
        self.pre_mlp_norm = norm("pre_feedforward_layernorm")
        self.mlp = Gemma3MLP(config, weights, f"{prefix}.mlp", bias=False)
        self.post_mlp_norm = norm("post_feedforward_layernorm")

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        out = self.attention.forward(self.pre_attention_norm.forward(x), rotation)
        x = x + self.post_attention_norm.forward(out)
        out = self.mlp.forward(self.pre_mlp_norm.forward(x))
        return x + self.post_mlp_norm.forward(out)


class Gemma3ForCausalLM:
    """Token ids in, logits out.

    Which layers slide is in `config.layer_types`. The window itself is the backend's
    affair; here the two kinds differ in the base frequency of their rotation.
    """

    def __init__(self, config: ModelConfig, weights: WeightReader) -> None:
        check_config(config)
        self.config = config
        vocab, hidden = config.vocab_size, config.hidden_size
        self.rotary = {
            kind: RotaryEmbedding(
                config.head_dim,
                config.max_position,
                rope_from_hf(config.hf.rope_parameters[kind]),
                weights.dtype,
                weights.device,
            )
            for kind in sorted(set(config.layer_types))
        }
        self.embedding = weights.take("model.embed_tokens.weight", vocab, hidden)
        # rounded to the dtype of the weights, as in training
        self.embedding_scale = torch.tensor(hidden**0.5, dtype=weights.dtype).item()
        self.layers = [
            Gemma3DecoderLayer(config, weights, layer_id)
            for layer_id in range(config.num_layers)
        ]
        self.norm = CenteredRMSNorm.load(
            weights, "model.norm", hidden, config.rms_norm_eps
        )
        tied = config.tie_word_embeddings and not weights.has("lm_head.weight")
        self.lm_head = Linear(
            self.embedding if tied else weights.take("lm_head.weight", vocab, hidden)
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits [len(batch.logit_indices) or num_tokens, vocab_size]."""
        x = F.embedding(batch.input_ids, self.embedding) * self.embedding_scale
        rotations = {
            kind: rotary.at(batch.positions) for kind, rotary in self.rotary.items()
        }
        for kind, layer in zip(self.config.layer_types, self.layers, strict=True):
            x = layer.forward(x, rotations[kind])
        if batch.logit_indices is not None:
            x = x[batch.logit_indices]
        return self.lm_head.forward(self.norm.forward(x))


def check_config(config: ModelConfig) -> None:
    """Raises ModelError for what a Gemma3TextConfig can ask for and is not served."""
    hf = config.hf
    for kind in config.layer_types:
        if kind not in LAYER_TYPES:
            raise ModelError(f"a layer is of the kind {kind!r}; it must be in {LAYER_TYPES}")
    if "sliding_attention" in config.layer_types and not hf.sliding_window:
        raise ModelError(f"sliding_window is {hf.sliding_window!r}; it must be 1 or more")
    if hf.hidden_activation != ACTIVATION:
        raise ModelError(
            f"hidden_activation is {hf.hidden_activation!r}; it must be {ACTIVATION!r}"
        )
    for name in (
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "use_bidirectional_attention",
    ):
        if getattr(hf, name):
            raise ModelError(
                f"{name} is {getattr(hf, name)!r}; models that have it are not served"
            )
