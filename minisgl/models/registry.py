"""Which class serves which architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from minisgl.errors import ModelError
from minisgl.models.config import ModelConfig, read_hf_config
from minisgl.models.gemma3 import Gemma3ForCausalLM
from minisgl.models.llama import LlamaForCausalLM
from minisgl.models.qwen2 import Qwen2ForCausalLM
from minisgl.models.qwen3 import Qwen3ForCausalLM
from minisgl.models.qwen3_5 import Qwen3_5ForCausalLM
from minisgl.models.weight import WeightReader

# the "architectures" entry of config.json -> class
MODELS: dict[str, type[Any]] = {
    "Gemma3ForCausalLM": Gemma3ForCausalLM,
    "LlamaForCausalLM": LlamaForCausalLM,
    "Qwen2ForCausalLM": Qwen2ForCausalLM,
    "Qwen3ForCausalLM": Qwen3ForCausalLM,
    "Qwen3_5ForCausalLM": Qwen3_5ForCausalLM,
}


def load_model(
    model_dir: str | Path, dtype: torch.dtype, device: torch.device
) -> LlamaForCausalLM:
    """Build the model of a Hugging Face directory, with its weights.

    Raises ModelError if the architecture is unknown or the weights do not fit it.
    """
    hf = read_hf_config(model_dir)
    architecture = hf.architectures[0]
    if architecture not in MODELS:
        raise ModelError(
            f"architecture {architecture!r} is not supported; "
            f"supported: {', '.join(MODELS)}"
        )
    config = ModelConfig.from_hf(hf)
    with WeightReader(model_dir, dtype, device) as weights:
        return MODELS[architecture](config, weights)
