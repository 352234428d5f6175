"""SmolLM2 in our own layers, beside the same model in transformers."""

from __future__ import annotations

from array import array

import torch
import transformers
from helper import smollm2

from minisgl.attention.dense import DenseAttention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.models.registry import load_model

transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
model = load_model(model_dir, torch.float32, torch.device("cpu"))

config, layer = model.config, model.layers[0]
heads, kv_heads = config.num_qo_heads, config.num_kv_heads
qkv, gate_up = layer.attention.qkv_proj.weight, layer.mlp.gate_up_proj.weight
head = "the embedding again" if model.lm_head.weight is model.embedding else "its own"
print(f"""{config.architecture} with {config.num_layers} layers
  embedding   {tuple(model.embedding.shape)}
  each layer  RMSNorm
              attention: {heads} query heads share {kv_heads} key heads,
                         q, k and v in one matrix {tuple(qkv.shape)}
              RMSNorm
              MLP:       gate and up in one matrix {tuple(gate_up.shape)}
  RMSNorm
  head        {head}
""")

text = "The capital of France is"
tokens = tokenizer(text).input_ids
req = Req(array("i", tokens), 0, 0, 1, uid=0, sampling_params=SamplingParams())
batch = Batch([req], "prefill")
batch.input_ids = torch.tensor(tokens)
batch.positions = torch.arange(len(tokens))
ctx = Context()
ctx.attn_backend = DenseAttention()
with torch.inference_mode(), ctx.forward_batch(batch):
    ours = model.forward(batch)  # [tokens, vocab]
hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
with torch.inference_mode():
    theirs = hf(torch.tensor([tokens])).logits[0]
best = [
    [repr(tokenizer.decode(token)) for token in logits[-1].topk(5).indices]
    for logits in (ours, theirs)
]

print(f"{text!r} goes on with")
print(f"  {'minisgl':<18}transformers")
for pair in zip(*best, strict=True):
    print("  {:<18}{}".format(*pair))
print(f"  with a probability of {ours[-1].softmax(0).max():.0%} for the first")
close = (ours - theirs).abs().max() < 1e-4
print(f"\nAll {ours.numel()} logits within 0.0001: {'yes' if close else 'no'}")
