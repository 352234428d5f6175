"""Sliding layers keep the window only: the same memory holds more tokens."""

from __future__ import annotations

import random
import tempfile

import torch
import transformers

from minisgl.core import SamplingParams
from minisgl.kvcache.unified import ComponentType
from minisgl.llm import LLM

PAGE = 4
model_dir = tempfile.mkdtemp()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=64, head_dim=16)
sizes |= dict(tie_word_embeddings=False, initializer_range=0.5, eos_token_id=None)
# five sliding layers to one full one
config = transformers.Gemma3TextConfig(**sizes, num_hidden_layers=6, sliding_window=16)
hf = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
hf.save_pretrained(model_dir)

settings = dict(device="cpu", dtype=torch.float32, page_size=PAGE, cache_type="unified")
pages = dict(num_page_override=256, num_swa_page_override=48, max_seq_len_override=512)
params = SamplingParams(max_tokens=60)
random.seed(0)
prompt = [random.randrange(99) for _ in range(80)]

with LLM(model_dir, **settings, **pages) as llm:
    pools, tree = llm.engine.pools, llm.scheduler.pages.cache
    full, window = 256 * PAGE * pools.full_bytes, 48 * PAGE * pools.swa_bytes
    before = (full + window) // (pools.full_bytes + pools.swa_bytes)
    print(
        f"a token takes {pools.full_bytes} bytes in full layers, {pools.swa_bytes} in"
    )
    print(f"sliding ones; with {full + window} bytes in all:")
    print(f"  if every layer kept every token: room for {before} tokens")
    print(f"  sliding layers keep a window:    room for {256 * PAGE} tokens\n")

    print("80 tokens of prompt, then 60 of answer; window pages in use, tokens locked:")
    for count, _ in enumerate(llm.stream(prompt, params), 1):
        held, locked = 48 - pools.swa.num_free, tree.protected_size(ComponentType.SWA)
        if count in (1, 8, 30, 59):
            print(f"  token {count:2}: {held} pages, {locked} tokens")

    (again,) = llm.generate(prompt, params)
    (longer,) = llm.generate(prompt + again["token_ids"], SamplingParams(max_tokens=1))
    print("\nthe tree (tombstone: the window KV is gone, the tokens are not):")
    tree.pretty_print()
ids = torch.tensor([prompt])
mask = torch.ones_like(ids)
theirs = hf.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=60)
print(f"\nthe prompt again: {again['cached_tokens']} of its 80 tokens were cached")
print(f"a next turn: {longer['cached_tokens']} of {longer['prompt_tokens']}")
same = theirs[0, 80:].tolist() == again["token_ids"]
print(f"token for token what transformers generates: {'yes' if same else 'no'}")
