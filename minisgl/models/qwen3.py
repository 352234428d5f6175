"""Qwen3: Llama with every query and key head normalised before the rotation."""

from __future__ import annotations

from minisgl.models.config import ModelConfig
from minisgl.models.llama import LayerStyle, LlamaForCausalLM


class Qwen3ForCausalLM(LlamaForCausalLM):
    @staticmethod
    def style(config: ModelConfig) -> LayerStyle:
        bias = config.hf.attention_bias
        return LayerStyle(qkv_bias=bias, o_bias=bias, qk_norm=True)
