"""Recurrent states in the tree: where they are kept, and how many tokens they save."""

from __future__ import annotations

import random
import tempfile

import torch
import transformers

from minisgl.core import SamplingParams
from minisgl.llm import LLM

model_dir = tempfile.mkdtemp()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=64, head_dim=16)
heads = dict(num_attention_heads=4, num_key_value_heads=2)
config = transformers.Qwen3_5TextConfig(  # three linear layers to one full one
    **sizes, **heads, num_hidden_layers=4, eos_token_id=None
)
hf = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
for parameter in hf.parameters():
    torch.nn.init.normal_(parameter, std=0.5)
hf.save_pretrained(model_dir)

random.seed(0)
opening = [random.randrange(99) for _ in range(12)]
params = SamplingParams(max_tokens=4)
total = saved = 0


def ask(llm: LLM, what: str, prompt: list[int]) -> list[int]:
    global total, saved
    (result,) = llm.generate(prompt, params)
    total, saved = total + len(prompt), saved + result["cached_tokens"]
    ids = torch.tensor([prompt])
    given = dict(attention_mask=torch.ones_like(ids), do_sample=False)
    theirs = hf.generate(ids, **given, max_new_tokens=4)[0, len(prompt) :].tolist()
    same = "as" if theirs == result["token_ids"] else "NOT as"
    cached = result["cached_tokens"]
    print(f"  {what}: {cached:2} of {len(prompt)} tokens reused, {same} transformers")
    return prompt + result["token_ids"]


settings = dict(device="cpu", dtype=torch.float32, cache_type="unified")
pages = dict(num_page_override=256, num_state_override=16, max_seq_len_override=512)
with LLM(model_dir, **settings, **pages) as llm:
    print(
        "three prompts with one opening of 12 tokens, and a conversation that goes on"
    )
    ask(llm, "first ", opening + [1, 2])
    ask(llm, "second", opening + [3, 4])  # leaves a checkpoint where the two part
    history = ask(llm, "third ", opening + [5, 6])
    ask(llm, "turn 2", history + [7, 8])
    print(f"\n{saved} of {total} prompt tokens were not computed; the tree:")
    llm.scheduler.pages.cache.pretty_print()
    print(f"\n{16 - llm.engine.pools.states.num_free} states are kept: one a node")
