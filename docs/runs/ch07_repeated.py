"""What a system prompt and a conversation cost when nothing is kept, and when it is.

The cache that keeps is the one of the tests: a dictionary of pages.
"""

import sys

import torch
from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.llm import LLM

sys.path.append("tests")
from dict_cache import DictPrefixCache

PAGE = 16
SYSTEM = (
    "You are the assistant of a public library. Answer in one short sentence. "
    "Be polite, and do not invent books: if you do not know a title, say so. "
    "Opening hours are from 9 to 18 on weekdays and from 10 to 14 on Saturdays. "
    "A card costs nothing. A book may be kept for four weeks, a film for one. "
)
QUESTIONS = [
    "May I bring my dog?",
    "How long may I keep a film?",
    "Are you open on Sunday?",
    "What does a card cost?",
    "Do you have books on trees?",
]


def new_llm(keeps):
    llm = LLM(
        smollm2(),
        device="cpu",
        dtype=torch.float32,
        page_size=PAGE,
        num_page_override=64,
        max_seq_len_override=512,
    )
    if keeps:
        llm.scheduler.pages.prefix_cache = DictPrefixCache(llm.engine.device, PAGE)
    return llm


def ask(llm, prompt, seen, sums):
    """Answer one prompt; add up its tokens, those seen before, those computed."""
    (result,) = llm.generate([prompt], SamplingParams(max_tokens=6))
    again = max((common(prompt, earlier) for earlier in seen), default=0)
    counts = (len(prompt), again, result["computed_tokens"])
    for place, count in enumerate(counts):
        sums[place] += count
    seen.append(prompt + result["token_ids"][:-1])  # the last one has no KV
    return result["token_ids"]


def common(a, b):
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def one_system_prompt(llm):
    seen, sums, answers = [], [0, 0, 0], []
    for question in QUESTIONS:
        prompt = llm.tokenizer(f"{SYSTEM}\nQ: {question}\nA:").input_ids
        answers.append(ask(llm, prompt, seen, sums))
    return sums, answers


def one_conversation(llm):
    seen, sums, answers = [], [0, 0, 0], []
    history = llm.tokenizer(SYSTEM).input_ids
    for question in QUESTIONS:
        history = history + llm.tokenizer(f"\nQ: {question}\nA:").input_ids
        answers.append(ask(llm, history, seen, sums))
        history = history + answers[-1]
    return sums, answers


for name, work in (
    (f"{len(QUESTIONS)} questions under one system prompt", one_system_prompt),
    (f"a conversation of {len(QUESTIONS)} turns", one_conversation),
):
    naive, dictionary = work(new_llm(keeps=False)), work(new_llm(keeps=True))
    assert naive[1] == dictionary[1], "the cache has changed an answer"
    (prompts, again, computed), kept = naive[0], dictionary[0][2]
    print(f"{name}: {prompts:,} prompt tokens")
    print(f"  had been computed before   {again:>6,}")
    print(f"  computed, naive cache      {computed:>6,}")
    print(f"  computed, dictionary       {kept:>6,}")
print(f"pages of {PAGE}; with both caches the same answers")
