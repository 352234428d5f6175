"""One answer, three ways: compute all tokens each time, only new ones, and even fewer.

The model is SmolLM2 in transformers; a Req says what each forward has to compute.
"""

import time
from array import array

import torch
import transformers
from helper import smollm2

from minisgl.core import Req, SamplingParams

OPENING = (
    "Here is a fairy tale, told in short sentences. Once upon a time there was a king "
    "who had three daughters. They lived in a castle by the sea.\n"
)
OUTPUT_LEN = 24

torch.set_num_threads(1)
transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)


@torch.inference_mode()
def forward(tokens: array, cache: transformers.DynamicCache) -> int:
    """Compute `tokens` behind those of the cache; the most likely next token."""
    logits = hf(torch.tensor([list(tokens)]), past_key_values=cache).logits
    return int(logits[0, -1].argmax())


def answer(what: str, cached_len: int = 0, forget: bool = False) -> list[int]:
    cache = transformers.DynamicCache()
    if cached_len:
        forward(prompt[:cached_len], cache)  # the work of an earlier request
    req = Req(prompt[:], 0, cached_len, OUTPUT_LEN, 0, SamplingParams())
    forwards, start = [], time.process_time()
    while req.can_decode:
        if forget:
            cache, req.cached_len = transformers.DynamicCache(), 0
        token = forward(req.input_ids[req.cached_len : req.device_len], cache)
        forwards.append(req.extend_len)
        req.complete_one()
        req.append_host(token)
    seconds = time.process_time() - start
    first = " + ".join(map(str, forwards[:3]))
    print(f"{what:<24}{first} + … = {sum(forwards):,} tokens, {seconds:.1f} s")
    return list(req.input_ids[req.prompt_len :])


prompt = array("i", tokenizer(OPENING + "The youngest").input_ids)
shared = array("i", tokenizer(OPENING).input_ids)
assert prompt[: len(shared)] == shared
forward(prompt, transformers.DynamicCache())  # warm up
print(f"a prompt of {len(prompt)} tokens, an answer of {OUTPUT_LEN}")
answers = [
    answer("all tokens each time", forget=True),
    answer("only those without KV"),
    answer(f"{len(shared)} are cached before", cached_len=len(shared)),
]
assert answers[0] == answers[1] == answers[2]
print("and three times the same answer:")
print("The youngest" + tokenizer.decode(answers[0]))
