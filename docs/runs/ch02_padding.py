"""Four prompts in one forward: as a padded rectangle, and behind one another.

Both are SmolLM2 in float32, on one core: the model of transformers, and ours.
"""

import time
from array import array

import torch
import transformers
from helper import smollm2

from minisgl.attention.dense import DenseAttention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.models.registry import load_model

TEXTS = [
    "Hello",
    "The capital of France is",
    "What is two plus two?",
    "Once upon a time there was a king who had three daughters. " * 6,
]

torch.set_num_threads(1)
transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
prompts = [tokenizer(text).input_ids for text in TEXTS]
lens = [len(prompt) for prompt in prompts]
hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
model = load_model(model_dir, torch.float32, torch.device("cpu"))


@torch.inference_mode()
def rectangle() -> torch.Tensor:
    width = max(lens)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    out = hf(ids, attention_mask=mask, position_ids=positions, logits_to_keep=1)
    return out.logits[:, 0]


@torch.inference_mode()
def behind_one_another() -> torch.Tensor:
    params = SamplingParams()
    reqs = [Req(array("i", p), row, 0, 1, row, params) for row, p in enumerate(prompts)]
    batch = Batch(reqs, "prefill")
    batch.input_ids = torch.tensor([token for p in prompts for token in p])
    batch.positions = torch.cat([torch.arange(n) for n in lens])
    batch.logit_indices = torch.tensor(lens).cumsum(0) - 1
    ctx = Context()
    ctx.attn_backend = DenseAttention()
    with ctx.forward_batch(batch):
        return model.forward(batch)


print(f"prompts of {', '.join(map(str, lens))} tokens")
logits = []
for what, rows, run in (
    ("a padded rectangle", len(lens) * max(lens), rectangle),
    ("behind one another", sum(lens), behind_one_another),
):
    run()  # warm up
    times = []
    for _ in range(3):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    logits.append(result)
    print(f"{what}: {rows:>3} rows, {min(times):.2f} s")
difference = (logits[0] - logits[1]).abs().max()
print(f"largest difference of their {logits[0].numel():,} logits: {difference:.6f}")
