"""A token of an answer: the whole text computed again, or keys and values kept."""

from array import array
from statistics import median
from time import process_time

import torch
from helper import smollm2
from transformers import AutoTokenizer

from minisgl.attention.dense import DenseAttention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.engine.generate import generate_one

NEW_TOKENS = 7
TEXT = (
    "Every great city has a river. Paris lies on the Seine, Rome on the Tiber, Vienna "
    "on the Danube, London on the Thames and Cairo on the Nile. "
)

tokenizer = AutoTokenizer.from_pretrained(smollm2())
engine = Engine(
    EngineConfig(
        smollm2(),
        device="cpu",
        dtype=torch.float32,
        max_seq_len_override=512,
        num_page_override=512,
    )
)


@torch.inference_mode()
def all_again(prompt):
    """Chapter 2: the whole text goes through the model for every token."""
    ids, times = list(prompt), []
    ctx = Context()
    ctx.attn_backend = DenseAttention()
    for _ in range(NEW_TOKENS):
        start = process_time()
        req = Req(array("i", ids), 0, 0, 1, uid=0, sampling_params=SamplingParams())
        batch = Batch([req], "prefill")
        batch.input_ids = torch.tensor(ids)
        batch.positions = torch.arange(len(ids))
        batch.logit_indices = torch.tensor([len(ids) - 1])
        with ctx.forward_batch(batch):
            ids.append(engine.model.forward(batch)[0].argmax().item())
        times.append(process_time() - start)
    return ids[len(prompt) :], times


def with_cache(prompt):
    """This chapter: the prompt once, then one token at a time."""
    times = []

    def forward_batch(batch):
        start = process_time()
        output = Engine.forward_batch(engine, batch)
        times.append(process_time() - start)
        return output

    engine.forward_batch = forward_batch
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    return generate_one(engine, prompt, params), times


print("  text    ms per further token (CPU time of one thread)")
print("tokens    all again    with KV")
for length in (50, 100, 200, 400):
    prompt = tokenizer(12 * TEXT).input_ids[:length]
    expected, again = all_again(prompt)
    answer, cached = with_cache(prompt)
    assert answer == expected
    # the first token needs the whole prompt in both forms
    again, cached = 1000 * median(again[1:]), 1000 * median(cached[1:])
    print(f"{length:>6} {again:>12,.0f} {cached:>10,.0f}    {again / cached:.0f} times")
