"""Loading SmolLM2: parameters made first and overwritten, or written once."""

import time

import torch
import transformers
from helper import smollm2
from safetensors.torch import load_file

from minisgl.models.registry import load_model

torch.set_num_threads(1)
model_dir = smollm2()
config = transformers.AutoConfig.from_pretrained(model_dir)


def write_twice() -> None:
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(load_file(model_dir / "model.safetensors"), strict=False)


def write_once() -> None:
    load_model(model_dir, torch.float32, torch.device("cpu"))


for what, run in (
    ("random numbers, then the weights", write_twice),
    ("each weight once", write_once),
):
    start = time.process_time()
    run()
    print(f"{what}: {time.process_time() - start:.1f} s")
