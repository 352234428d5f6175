"""Qwen3.5, text: most layers carry a state, every fourth or so attends to everything.

The linear layers are gated delta networks (Yang et al., 2024) with a short convolution
in front. The full layers gate what they give (Qiu et al., "Gated Attention", 2025), and
rotate only a part of each head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.core import Batch, get_global_ctx
from minisgl.kvcache.state_pool import LINEAR, LayerState, StateMetadata
from minisgl.layers.causal_conv import causal_conv
from minisgl.layers.centered_norm import CenteredRMSNorm
from minisgl.layers.gated_delta import delta_step, gated_delta_rule
from minisgl.layers.linear import Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import RotaryEmbedding, Rotation, rotate
from minisgl.models.config import ModelConfig
from minisgl.models.llama import GatedMLP
from minisgl.models.weight import WeightReader


class GatedAttention:
    """Attention whose output is multiplied by a gate that the input sets.

    Each head's query comes with a gate of the same size, from the same projection.
    """

    def __init__(
        self, config: ModelConfig, weights: WeightReader, prefix: str, layer_id: int
    ) -> None:
        dim, hidden, bias = config.head_dim, config.hidden_size, config.hf.attention_bias
        self.layer_id = layer_id  # among the full layers
        self.head_dim = dim
        q_size, kv_size = config.num_qo_heads * dim, config.num_kv_heads * dim
        self.sizes = [2 * q_size, kv_size, kv_size]
        names = [f"{prefix}.{name}_proj" for name in "qkv"]
        parts = list(zip(names, self.sizes, strict=True))
        self.qkv_proj = Linear.load(weights, parts, hidden, bias)
        self.o_proj = Linear.load(weights, [(f"{prefix}.o_proj", hidden)], q_size, bias)
        eps = config.rms_norm_eps
        self.q_norm = CenteredRMSNorm.load(weights, f"{prefix}.q_norm", dim, eps)
        self.k_norm = CenteredRMSNorm.load(weights, f"{prefix}.k_norm", dim, eps)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """[tokens, hidden] -> the same shape."""
        ctx = get_global_ctx()
        q_gate, k, v = self.qkv_proj.forward(x).split(self.sizes, dim=-1)
        q, gate = q_gate.view(len(x), -1, 2 * self.head_dim).chunk(2, dim=-1)
        k = k.view(len(x), -1, self.head_dim)
        v = v.view(len(x), -1, self.head_dim)
        q = rotate_part(self.q_norm.forward(q), rotation)
        k = rotate_part(self.k_norm.forward(k), rotation)
        out = ctx.attn_backend.forward(q, k, v, self.layer_id, ctx.batch)
        return self.o_proj.forward((out * gate.sigmoid()).view(len(x), -1))


class GatedDeltaNet:
    """Convolve queries, keys and values a little; then the gated delta rule.

    Value heads come in groups that share a query and a key head. The state of a layer
    is what its convolution looks back on, and the matrix of each head.
    """

    def __init__(
        self, config: ModelConfig, weights: WeightReader, prefix: str, layer_id: int
    ) -> None:
        hf, hidden = config.hf, config.hidden_size
        self.layer_id = layer_id  # among the linear layers
        self.num_heads = heads = hf.linear_num_value_heads
        self.group_size = heads // hf.linear_num_key_heads
        self.key_dim = hf.linear_key_head_dim
        self.value_dim = hf.linear_value_head_dim
        keys = hf.linear_num_key_heads * self.key_dim
        values = heads * self.value_dim
        self.qkv_sizes = [keys, keys, values]
        conv_dim, self.num_taps = sum(self.qkv_sizes), hf.linear_conv_kernel_dim
        self.in_sizes = [conv_dim, values, heads, heads]
        names = [f"{prefix}.in_proj_{name}" for name in ("qkv", "z", "b", "a")]
        self.in_proj = Linear.load(
            weights, list(zip(names, self.in_sizes, strict=True)), hidden
        )
        self.conv_weight = weights.take(
            f"{prefix}.conv1d.weight", conv_dim, 1, self.num_taps
        ).squeeze(1)
        self.decay_rate = weights.take(f"{prefix}.A_log", heads).float().exp()
        self.decay_bias = weights.take(f"{prefix}.dt_bias", heads)
        self.norm = RMSNorm.load(
            weights, f"{prefix}.norm", self.value_dim, config.rms_norm_eps
        )
        self.out_proj = Linear.load(weights, [(f"{prefix}.out_proj", hidden)], values)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] -> the same shape."""
        batch = get_global_ctx().batch
        qkv, z, b, a = self.in_proj.forward(x).split(self.in_sizes, dim=-1)
        beta = b.sigmoid().float()
        log_decay = -self.decay_rate * F.softplus(a.float() + self.decay_bias)
        recur = self._decode if batch.is_decode else self._prefill
        out = recur(qkv, log_decay, beta, batch.state_metadata)
        gate = F.silu(z.view(out.shape).float())
        out = self.norm.forward(out.to(x.dtype)) * gate
        return self.out_proj.forward(out.to(x.dtype).view(len(x), -1))

    def _prefill(
        self,
        qkv: torch.Tensor,
        log_decay: torch.Tensor,
        beta: torch.Tensor,
        meta: StateMetadata,
    ) -> torch.Tensor:
        """Request by request, and in pieces where a state is to be kept midway."""
        outs = []
        for span in meta.spans:
            new = slice(span.start, span.end)
            conv, state = meta.pool.read(self.layer_id, span.slot)
            seen = torch.cat([conv, qkv[new]])
            heads = self._heads(causal_conv(seen[None], self.conv_weight)[0])
            inputs = (*heads, log_decay[new], beta[new])
            for begin, end, slot in span.pieces:
                out, state = gated_delta_rule(*(x[begin:end] for x in inputs), state)
                outs.append(out)
                conv = seen[end : end + self.num_taps - 1]
                meta.pool.write(self.layer_id, slot, LayerState(conv, state))
        return torch.cat(outs)

    def _decode(
        self,
        qkv: torch.Tensor,
        log_decay: torch.Tensor,
        beta: torch.Tensor,
        meta: StateMetadata,
    ) -> torch.Tensor:
        """One token of every request, in one go."""
        conv, state = meta.pool.read(self.layer_id, meta.slots)
        seen = torch.cat([conv, qkv[:, None]], dim=1)
        heads = self._heads(causal_conv(seen, self.conv_weight)[:, 0])
        out, state = delta_step(*heads, log_decay, beta, state)
        meta.pool.write(self.layer_id, meta.slots, LayerState(seen[:, 1:], state))
        return out

    def _heads(
        self, qkv: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[tokens, conv_dim] -> q, k, v [tokens, heads, their dim], float32.

        Queries and keys have length 1, and queries are scaled as in attention.
        """
        q, k, v = qkv.float().split(self.qkv_sizes, dim=-1)
        q, k = (x.reshape(len(x), -1, self.key_dim) for x in (q, k))
        q = unit_length(q) * self.key_dim**-0.5
        k = unit_length(k)
        q, k = (x.repeat_interleave(self.group_size, dim=1) for x in (q, k))
        return q, k, v.reshape(len(v), -1, self.value_dim)


class Qwen3_5DecoderLayer:
    """One of the two mixers, then MLP, each on a normalised copy and added back."""

    def __init__(
        self, config: ModelConfig, weights: WeightReader, layer_id: int
    ) -> None:
        prefix = f"model.layers.{layer_id}"
        size, eps = config.hidden_size, config.rms_norm_eps
        kind = config.layer_types[layer_id]
        index = config.layer_types[:layer_id].count(kind)  # among its kind
        self.is_linear = kind == LINEAR
        if self.is_linear:
            self.mixer = GatedDeltaNet(config, weights, f"{prefix}.linear_attn", index)
        else:
            self.mixer = GatedAttention(config, weights, f"{prefix}.self_attn", index)
        self.input_norm = CenteredRMSNorm.load(
            weights, f"{prefix}.input_layernorm", size, eps
        )
        self.post_norm = CenteredRMSNorm.load(
            weights, f"{prefix}.post_attention_layernorm", size, eps
        )
        self.mlp = GatedMLP(config, weights, f"{prefix}.mlp", bias=False)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        normed = self.input_norm.forward(x)
        if self.is_linear:
            x = x + self.mixer.forward(normed)
        else:
            x = x + self.mixer.forward(normed, rotation)
        return x + self.mlp.forward(self.post_norm.forward(x))


class Qwen3_5ForCausalLM:
    """Token ids in, logits out."""

    def __init__(self, config: ModelConfig, weights: WeightReader) -> None:
        self.config = config
        vocab, hidden = config.vocab_size, config.hidden_size
        share = config.hf.rope_parameters.get("partial_rotary_factor", 1.0)
        self.rotary = RotaryEmbedding(
            int(config.head_dim * share),
            config.max_position,
            config.rope,
            weights.dtype,
            weights.device,
        )
        self.embedding = weights.take("model.embed_tokens.weight", vocab, hidden)
        self.layers = [
            Qwen3_5DecoderLayer(config, weights, layer_id)
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
        x = F.embedding(batch.input_ids, self.embedding)
        rotation = self.rotary.at(batch.positions)
        for layer in self.layers:
            x = layer.forward(x, rotation)
        if batch.logit_indices is not None:
            x = x[batch.logit_indices]
        return self.lm_head.forward(self.norm.forward(x))


def rotate_part(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turn the first dimensions of `heads` [tokens, num_heads, head_dim], as many as
    the rotation has."""
    size = rotation.cos.shape[-1]
    turned = rotate(heads[..., :size], rotation)
    return torch.cat([turned, heads[..., size:]], dim=-1)


def unit_length(x: torch.Tensor) -> torch.Tensor:
    """x / |x| over the last dimension; a zero vector stays one."""
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)
