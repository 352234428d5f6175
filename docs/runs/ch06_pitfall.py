"""Three requests that are let in by tokens, where memory changes hands in pages."""

import torch
from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.errors import PoolError
from minisgl.llm import LLM
from minisgl.scheduler.pages import PageManager

PROMPTS = ["The capital of France is", "The opposite of hot is", "The color of snow is"]
PAGE, NUM_PAGES, MAX_TOKENS = 4, 8, 5


class ByTokens(PageManager):
    """Adds up the tokens that all may come to, as if a page could be shared."""

    def _has_room(self, pending, cached_len):
        promised = sum(req.max_device_len for req in self.live.values())
        return promised + pending.max_len <= self.allocator.num_pages * self.page_size


def new_llm():
    return LLM(
        smollm2(),
        device="cpu",
        dtype=torch.float32,
        page_size=PAGE,
        num_page_override=NUM_PAGES,
        max_seq_len_override=PAGE * NUM_PAGES,
    )


def serve(llm):
    params, texts = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True), [""] * 3
    try:
        for chunk in llm.stream(PROMPTS, params):
            texts[chunk.index] += chunk.text
    except PoolError as error:
        print(f"  PoolError: {error}")
    for prompt, text in zip(PROMPTS, texts, strict=True):
        print(f"  {prompt!r:<27} {text!r}")


llm = new_llm()
lens = [len(llm.tokenizer(prompt).input_ids) + MAX_TOKENS for prompt in PROMPTS]
print(f"{NUM_PAGES} pages of {PAGE} slots; requests of {lens} tokens in the end")
llm.scheduler.pages.__class__ = ByTokens
print("admitted by tokens")
serve(llm)
print("admitted by pages")
serve(new_llm())
