"""A follow-up that finds KV for one token too many: the last one was never computed.

The model is SmolLM2 in transformers; its cache stands for the pool, in which a slot
that nobody has written holds zeros.
"""

from array import array

import torch
import transformers
from helper import smollm2

from minisgl.core import Req, SamplingParams

transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)


@torch.inference_mode()
def answer(req: Req, cache: transformers.DynamicCache) -> str:
    while req.can_decode:
        tokens = req.input_ids[req.cached_len : req.device_len]
        logits = hf(torch.tensor([list(tokens)]), past_key_values=cache).logits
        req.complete_one()
        req.append_host(int(logits[0, -1].argmax()))
    return tokenizer.decode(req.input_ids[req.prompt_len :])


def add_unwritten_slot(cache: transformers.DynamicCache) -> None:
    for layer in cache.layers:
        zeros = torch.zeros_like(layer.keys[:, :, :1])
        layer.keys = torch.cat([layer.keys, zeros], dim=2)
        layer.values = torch.cat([layer.values, zeros], dim=2)


def two_turns(what: str, length: str) -> None:
    cache = transformers.DynamicCache()
    tokens = array("i", tokenizer("My favourite colour is").input_ids)
    first = Req(tokens, 0, 0, 1, uid=1, sampling_params=SamplingParams())
    said = answer(first, cache)
    kept = getattr(first, length)
    if kept > first.cached_len:
        add_unwritten_slot(cache)
    more = tokenizer("\nQuestion: which colour do I like best?\nAnswer:").input_ids
    tokens = first.input_ids + array("i", more)
    follow_up = Req(tokens, 0, kept, 1, uid=2, sampling_params=SamplingParams())
    print(f"{what}, {length} = {kept} tokens are kept")
    print(f"  My favourite colour is{said}")
    print("  Question: which colour do I like best?")
    print(f"  Answer:{answer(follow_up, cache)}")


two_turns("wrong", "device_len")
two_turns("right", "cached_len")
