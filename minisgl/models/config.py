"""What a model looks like, read from the config.json of a Hugging Face directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minisgl.errors import ModelError


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: base frequency, and how it is stretched (None: not at all)."""

    theta: float
    scaling: dict[str, Any] | None = None


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of a decoder-only transformer.

    `hf` keeps the Hugging Face config it was read from, for what only one architecture
    has.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position: int
    tie_word_embeddings: bool
    rope: RopeConfig
    hf: Any

    @classmethod
    def from_dir(cls, model_dir: str | Path) -> ModelConfig:
        """Read `model_dir`/config.json; raises ModelError as the two steps do."""
        return cls.from_hf(read_hf_config(model_dir))

    @classmethod
    def from_hf(cls, hf: Any) -> ModelConfig:
        """Take the fields that every supported architecture has.

        Raises ModelError for a switch that would change the numbers and is not served.
        """
        if getattr(hf, "use_sliding_window", False):
            raise ModelError("use_sliding_window is on; no served architecture has it")
        activation = getattr(hf, "hidden_act", "silu")
        if activation != "silu":
            raise ModelError(f"hidden_act is {activation!r}; only 'silu' is supported")
        head_dim = getattr(hf, "head_dim", None)
        return cls(
            architecture=hf.architectures[0],
            vocab_size=hf.vocab_size,
            hidden_size=hf.hidden_size,
            intermediate_size=hf.intermediate_size,
            num_layers=hf.num_hidden_layers,
            num_qo_heads=hf.num_attention_heads,
            num_kv_heads=hf.num_key_value_heads,
            head_dim=head_dim or hf.hidden_size // hf.num_attention_heads,
            rms_norm_eps=hf.rms_norm_eps,
            max_position=hf.max_position_embeddings,
            tie_word_embeddings=hf.tie_word_embeddings,
            # where each kind of layer has its own, those of the full layers
            rope=rope_from_hf(
                hf.rope_parameters.get("full_attention", hf.rope_parameters)
            ),
            hf=hf,
        )

    @property
    def layer_types(self) -> list[str]:
        """What each layer is, in the words of config.json; full attention by default."""
        types = getattr(self.hf, "layer_types", None)
        return types or ["full_attention"] * self.num_layers


def read_hf_config(model_dir: str | Path) -> Any:
    """The transformers config of a model directory.

    Raises ModelError if there is no such directory, no config.json in it, or one that
    is damaged or names no architecture.
    """
    from transformers import AutoConfig

    path = Path(model_dir) / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{str(model_dir)!r} is not a model directory: it has no config.json. "
            "Give a directory in Hugging Face format; "
            "'tools/models.py get smollm2' makes one."
        )
    try:
        hf = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    except Exception as error:  # transformers has no common base for these
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not hf.architectures:
        raise ModelError(f"{path} names no architecture; add 'architectures'")
    return hf


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ModelError if the file is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path} is damaged: it holds no JSON object")
    return data


def rope_from_hf(parameters: dict[str, Any]) -> RopeConfig:
    """Raises ModelError for a kind of scaling that `layers/rotary.py` does not have."""
    kind = parameters.get("rope_type", "default")
    if kind not in ("default", "llama3"):
        raise ModelError(f"rope_type is {kind!r}; 'default' and 'llama3' are supported")
    scaling = dict(parameters) if kind == "llama3" else None
    return RopeConfig(theta=parameters["rope_theta"], scaling=scaling)
