"""GGUF file in, Hugging Face directory out; run as a program of its own.

    python convert_gguf.py MODEL.gguf NEW_DIR '{"eos_token_id": 2, …}'

It is a separate process because torch and transformers are slow to load, hold much
memory and write where they like: the caller stays light, can be interrupted at any
time, and decides by the environment where caches go. Progress is one line per step on
stdout; transformers' own chatter is on stderr.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def convert(gguf: Path, target: Path, expected: dict[str, Any]) -> None:
    """Write config, generation config, float32 weights and tokenizer to `target`.

    `expected` holds configuration values that are known for this model; a difference
    means that the installed transformers reads GGUF differently, and raises ValueError.
    """
    say("loading transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    say("reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(**where)
    say("unpacking the weights")
    model, report = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.float32, output_loading_info=True
    )
    if any(report.values()):
        raise ValueError(f"the weights do not fit the model: {report}")

    say("writing the model directory")
    target.mkdir(parents=True, exist_ok=True)
    save_config(model, target)
    save_weights(model, target)
    save_tokenizer(tokenizer, gguf, model.config.max_position_embeddings, target)
    check(target, expected)


def save_config(model: PreTrainedModel, target: Path) -> None:
    from transformers import GenerationConfig

    config = model.config
    # Only `model.save_pretrained` sets this, and it refuses models read from GGUF.
    config.architectures = [type(model).__name__]
    # Left in, it would make every later load look for the GGUF file.
    del config.quantization_config
    # Copied from the GGUF by name; no part of this kind of configuration.
    del config._model_name_or_path
    del config.unk_token_id
    # GGUF holds it in float32, so 1e-05 comes out as 9.999999747378752e-06.
    config.rms_norm_eps = shortest_float32(config.rms_norm_eps)
    config.save_pretrained(target)
    # Without this file `generate` makes the same values up from config.json, but other
    # programs read EOS only here.
    GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    ).save_pretrained(target)


def save_weights(model: PreTrainedModel, target: Path) -> None:
    """One safetensors file. Float32, because dequantised values are exact in it."""
    from safetensors.torch import save_file

    weights = {name: w.contiguous() for name, w in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]  # the same tensor as the embedding
    path = target / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file makes it 0600; a models directory may be shared


def save_tokenizer(
    tokenizer: PreTrainedTokenizerFast, gguf: Path, context_len: int, target: Path
) -> None:
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        # transformers ignores this field and keeps only the byte-level split. The
        # model was trained with every digit on its own, which also decides how the
        # space before a digit is cut: "  2" is ["  ", "2"], not [" ", " ", "2"].
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
    tokenizer.model_max_length = context_len
    # How this tokenizer was loaded is no property of the model.
    for key in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(target)


def check(target: Path, expected: dict[str, Any]) -> None:
    """Raise ValueError unless the written config.json has the `expected` values."""
    config = json.loads((target / "config.json").read_text())
    wrong = {
        key: config.get(key) for key in expected if config.get(key) != expected[key]
    }
    if wrong:
        raise ValueError(f"converted configuration has {wrong}, expected {expected}")


def shortest_float32(value: float) -> float:
    """The shortest decimal that is the same float32 as `value`."""
    packed = struct.pack("f", value)
    return next(
        short
        for digits in range(1, 10)
        if struct.pack("f", short := float(f"{value:.{digits}g}")) == packed
    )


def say(step: str) -> None:
    print(step, flush=True)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
