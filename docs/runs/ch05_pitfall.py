"""What a seed is worth if all requests of an engine share one random generator."""

from array import array
from random import Random

import torch
from helper import smollm2
from transformers import AutoTokenizer

from minisgl.core import Batch, Req, SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.engine.sample import Sampler

ROW_LEN = 64  # each request has this many slots of the pool to itself


class SharedSampler(Sampler):
    """One generator for the whole engine, seeded when the request begins."""

    def _draw(self, req):
        if req.cached_len == 0:
            self._shared = Random(req.sampling_params.seed)
        return self._shared.random()


def stories(engine, prompts, seeds):
    """Answers of 12 tokens to requests that share every batch."""
    reqs = []
    for row, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        params = SamplingParams(temperature=0.8, top_p=0.95, seed=seed)
        engine.tables.write_tokens(row, 0, prompt)
        engine.tables.write_slots(row, 0, range(row * ROW_LEN, (row + 1) * ROW_LEN))
        reqs.append(Req(array("i", prompt), row, 0, 12, row, params))
    phase = "prefill"
    while reqs[0].can_decode:
        tokens = engine.forward_batch(Batch(reqs, phase)).next_tokens
        for req, token in zip(reqs, tokens.tolist(), strict=True):
            req.append_host(token)
        phase = "decode"
    return [list(req.input_ids[req.prompt_len :]) for req in reqs]


tokenizer = AutoTokenizer.from_pretrained(smollm2())
engine = Engine(
    EngineConfig(
        smollm2(),
        device="cpu",
        dtype=torch.float32,
        max_seq_len_override=ROW_LEN,
        num_page_override=2 * ROW_LEN,
    )
)
story, recipe = tokenizer(["Once upon a time", "To bake bread, you"]).input_ids
for title, sampler in (
    ("one generator for all requests:", SharedSampler()),
    ("a number of (seed, place in the answer):", Sampler()),
):
    engine.sampler = sampler
    print(title)
    [alone] = stories(engine, [story], [7])
    print(f"  seed 7 alone          {tokenizer.decode(alone)!r}")
    company, _ = stories(engine, [story, recipe], [7, 8])
    print(f"  seed 7 beside seed 8  {tokenizer.decode(company)!r}")
