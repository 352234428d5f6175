"""How an engine is set up, and what it takes from the model directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from minisgl.errors import EngineConfigError
from minisgl.models.config import read_json

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class EngineConfig:
    """Settings of an engine. Raises EngineConfigError for those that make no sense.

    `dtype` None is float32 on a CPU and bfloat16 on a GPU. The pool gets
    `num_page_override` pages, or what fits in `memory_ratio` of the memory that is free
    once the model is loaded. No request may be longer than `max_seq_len_override`
    tokens, prompt and answer together, or than what the model was made for.

    A model with sliding layers also gets `num_swa_page_override` window pages, or half
    as many as there are pages.
    One with linear layers gets `num_state_override` states, or four for each request
    that may run, if half of that memory holds them.
    """

    model_path: str | Path
    dtype: torch.dtype | None = None
    device: str = "auto"
    page_size: int = 1
    max_running_req: int = 64
    max_seq_len_override: int | None = None
    num_page_override: int | None = None
    num_swa_page_override: int | None = None
    num_state_override: int | None = None
    memory_ratio: float = 0.5

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise EngineConfigError(f"dtype is {self.dtype!r}; it must be in {DTYPES}")
        for name in (
            "page_size",
            "max_running_req",
            "max_seq_len_override",
            "num_page_override",
            "num_swa_page_override",
            "num_state_override",
        ):
            value = getattr(self, name)
            unset = value is None and name.endswith("_override")
            if not unset and (type(value) is not int or value < 1):
                raise EngineConfigError(f"{name} is {value!r}; it must be 1 or more")
        ratio = self.memory_ratio
        if type(ratio) not in (int, float) or not 0 < ratio <= 1:
            raise EngineConfigError(
                f"memory_ratio is {ratio!r}; it must be a number above 0, at most 1"
            )


def load_eos_token_ids(model_dir: str | Path) -> frozenset[int]:
    """The tokens that end an answer.

    As in transformers: generation_config.json decides, and where there is none,
    config.json does.
    """
    for name in ("generation_config.json", "config.json"):
        path = Path(model_dir) / name
        if path.is_file():
            eos = read_json(path).get("eos_token_id")
            ids = [] if eos is None else eos if isinstance(eos, list) else [eos]
            return frozenset(ids)
    return frozenset()
