"""Five sliding layers to one full: the same memory holds more tokens."""

import tempfile

import torch
import transformers
from helper import gemma3

from minisgl.core import SamplingParams
from minisgl.kvcache.unified import ComponentType
from minisgl.llm import LLM

settings = dict(device="cpu", dtype=torch.float32, cache_type="unified")
settings |= dict(page_size=4, num_page_override=256, max_seq_len_override=512)
params = SamplingParams(max_tokens=60)


def show_room(llm: LLM, swa_pages: int) -> None:
    pools = llm.engine.pools
    full, window = 256 * 4 * pools.full_bytes, swa_pages * 4 * pools.swa_bytes
    before = (full + window) // (pools.full_bytes + pools.swa_bytes)
    print(f"bytes a token: full layers {pools.full_bytes}, sliding {pools.swa_bytes}")
    print(f"{full + window} bytes, every layer keeping all: {before} tokens")
    print(f"sliding layers keeping a window: {256 * 4} tokens\n")


model_dir = tempfile.mkdtemp()
torch.manual_seed(0)
sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=64, head_dim=16)
sizes |= dict(tie_word_embeddings=False, initializer_range=0.5, eos_token_id=None)
config = transformers.Gemma3TextConfig(**sizes, num_hidden_layers=6, sliding_window=16)
hf = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
hf.save_pretrained(model_dir)
ids = torch.randint(99, (1, 80))
prompt, mask = ids[0].tolist(), torch.ones_like(ids)

with LLM(model_dir, num_swa_page_override=48, **settings) as llm:
    show_room(llm, 48)
    pool, tree = llm.engine.pools.swa, llm.scheduler.pages.cache
    print("80 tokens of prompt, then 60 of answer; window pages in use, tokens locked:")
    for count, _ in enumerate(llm.stream(prompt, params), 1):
        held, locked = 48 - pool.num_free, tree.protected_size(ComponentType.SWA)
        if count in (1, 8, 30, 59):
            print(f"  token {count:2}: {held} pages, {locked} tokens")
    (again,) = llm.generate(prompt, params)
    (longer,) = llm.generate(prompt + again["token_ids"], SamplingParams(max_tokens=1))
    print("\nthe tree (tombstone: the window KV is gone, the tokens are not):")
    tree.pretty_print()
theirs = hf.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=60)
hits = again["cached_tokens"], longer["cached_tokens"]
print(f"\ncached: {hits[0]} of the prompt's 80, {hits[1]} of a next turn's 140 tokens")
same = theirs[0, 80:].tolist() == again["token_ids"]
print(f"token for token what transformers generates: {'yes' if same else 'no'}")

if (real := gemma3()) is not None:  # after tools/models.py get gemma3
    print("\nGemma 3 270M: a window of 512 in 15 of its 18 layers")
    with LLM(str(real), num_swa_page_override=150, **settings) as llm:
        show_room(llm, 150)
        print(llm.generate(["The capital of France is"], params)[0]["text"])
