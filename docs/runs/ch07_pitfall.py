"""Two equal prompts in one batch; the second copy is freed, and its row forgotten."""

import sys
import textwrap

import torch
from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.errors import IntegrityError, PoolError
from minisgl.llm import LLM
from minisgl.scheduler.cache import CacheManager

sys.path.append("tests")
from dict_cache import DictPrefixCache

INDENT = {"initial_indent": "  ", "subsequent_indent": "    "}


class Forgetful(CacheManager):
    """Hands over and frees as it should, but leaves the row as it was."""

    def cache_unfinished(self, req):
        insert = self._insert(req)
        self.prefix_cache.lock_handle(insert.handle)
        self.prefix_cache.lock_handle(req.cache_handle, unlock=True)
        req.cache_handle = insert.handle
        self.allocator.free(insert.duplicates)


def serve(manager):
    llm = LLM(
        smollm2(),
        device="cpu",
        dtype=torch.float32,
        num_page_override=64,
        max_seq_len_override=48,
    )
    scheduler, pages = llm.scheduler, llm.scheduler.pages
    pages.__class__ = manager
    pages.prefix_cache = DictPrefixCache(llm.engine.device, page_size=1)
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    names, answers, faults = {}, {}, {}

    def add(name, text):
        uid = scheduler.add(llm.tokenizer(text).input_ids, params)
        names[uid], answers[uid] = name, []

    add("a", "The capital of France is")
    add("b", "The capital of France is")
    for step in range(1, 13):
        if step == 3:
            add("c", "Roses are red")
        try:
            for reply in scheduler.step():
                answers[reply.uid].append(reply.token)
            pages.check_integrity()
        except (IntegrityError, PoolError) as error:
            faults.setdefault(type(error).__name__, f"step {step}, {error}")
    for uid, name in names.items():
        print(f"  {name} {llm.tokenizer.decode(answers[uid])!r}")
    for name, fault in faults.items():
        print(textwrap.fill(f"{name} at {fault}", 84, **INDENT))


print("the row still points at the freed copy")
serve(Forgetful)
print("the row points at the pages of the cache")
serve(CacheManager)
