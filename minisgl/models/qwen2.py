"""Qwen2: Llama with a bias on query, key and value."""

from __future__ import annotations

from minisgl.models.config import ModelConfig
from minisgl.models.llama import LayerStyle, LlamaForCausalLM


class Qwen2ForCausalLM(LlamaForCausalLM):
    @staticmethod
    def style(config: ModelConfig) -> LayerStyle:
        return LayerStyle(qkv_bias=True)
