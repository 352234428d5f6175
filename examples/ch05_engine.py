"""One request from its prompt to its last token, as transformers would answer it."""

from __future__ import annotations

import time

import torch
import transformers
from helper import measured, smollm2

from minisgl.core import SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.engine.generate import generate_one

transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
config = EngineConfig(
    model_dir,
    device="cpu",
    dtype=torch.float32,
    page_size=16,
    max_seq_len_override=256,
    num_page_override=16,
)
engine = Engine(config)
print(f"{engine.num_pages} pages of 16 tokens; EOS is {sorted(engine.eos_token_ids)}\n")

question = "What is the capital of France? Answer in one sentence."
chat = [{"role": "user", "content": question}]
prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True).input_ids
start = time.perf_counter()
answer = generate_one(engine, prompt, SamplingParams(max_tokens=40))
per_token = 1000 * (time.perf_counter() - start) / len(answer)
print(f"{question}\n  {tokenizer.decode(answer)!r}")
print(f"  {len(prompt)} tokens in, {len(answer)} out, {measured(per_token, 'ms')} each")

hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
ids = torch.tensor([prompt])
theirs = hf.generate(
    ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40
)
same = theirs[0, len(prompt) :].tolist() == answer
print(f"  token for token what transformers generates: {'yes' if same else 'no'}\n")


def story(seed: int) -> list[int]:
    params = SamplingParams(temperature=0.8, top_p=0.95, seed=seed, max_tokens=12)
    return generate_one(engine, tokenizer("Once upon a time").input_ids, params)


first, again, other = story(1), story(1), story(2)
print("sampled with a temperature of 0.8")
print(f"  seed 1 twice gives one story: {'yes' if first == again else 'no'}")
print(f"  seed 2 gives another: {'yes' if first != other else 'no'}")
