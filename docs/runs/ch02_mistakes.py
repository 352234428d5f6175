"""What small mistakes in a model change: its next token, and its logits.

Each mistake is made in our SmolLM2 and measured against the one of transformers: the
largest difference of all logits of a text, and how a short text goes on.
"""

from array import array
from unittest import mock

import torch
import torch.nn.functional as F
import transformers
from helper import smollm2

from minisgl.attention.dense import DenseAttention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.layers.rotary import RotaryEmbedding
from minisgl.models.config import RopeConfig
from minisgl.models.registry import load_model

SHORT = "The capital of France is"
LONG = (
    "Once upon a time there was a king who had three daughters. They lived in a castle "
    "by the sea, and every evening they looked at the ships that came home."
)
CPU = torch.device("cpu")

transformers.logging.disable_progress_bar()
model_dir = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
short, long = tokenizer(SHORT).input_ids, tokenizer(LONG).input_ids
hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
with torch.inference_mode():
    right = hf(torch.tensor([long])).logits[0]


@torch.inference_mode()
def logits(model, tokens: list[int]) -> torch.Tensor:
    req = Req(array("i", tokens), 0, 0, 1, uid=0, sampling_params=SamplingParams())
    batch = Batch([req], "prefill")
    batch.input_ids = torch.tensor(tokens)
    batch.positions = torch.arange(len(tokens))
    ctx = Context()
    ctx.attn_backend = DenseAttention()
    with ctx.forward_batch(batch):
        return model.forward(batch).float()


def measure(what: str, model) -> None:
    difference = (logits(model, long) - right).abs().max()
    token = tokenizer.decode(logits(model, short)[-1].argmax())
    print(f"{what:<32}{difference:>10.5f}   {token!r}")


def neighbours_are_pairs(heads, rotation):
    half = heads.shape[-1] // 2
    cos, sin = rotation.cos[..., :half], rotation.sin[..., half:]
    a, b = heads[..., 0::2], heads[..., 1::2]
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return turned.flatten(-2)


def deal_heads_like_cards(x, repeats, dim):
    return x.repeat(1, repeats, 1)


def gate_the_gate(mlp, x):
    gate, up = mlp.gate_up_proj.forward(x).chunk(2, dim=-1)
    return mlp.down_proj.forward(F.silu(up) * gate)


print(f"{'':<30}logits off by   {SHORT} …")
measure("no mistake, bfloat16", load_model(model_dir, torch.bfloat16, CPU))
model = load_model(model_dir, torch.float32, CPU)
measure("no mistake, float32", model)
with mock.patch.object(torch.Tensor, "repeat_interleave", deal_heads_like_cards):
    measure("query heads dealt like cards", model)
with mock.patch("minisgl.layers.attention.rotate", neighbours_are_pairs):
    measure("neighbours turned as pairs", model)
with mock.patch("minisgl.models.llama.GatedMLP.forward", gate_the_gate):
    measure("gate and up swapped", model)
sizes = (model.config.head_dim, model.config.max_position)
other = RotaryEmbedding(*sizes, RopeConfig(theta=10_000.0), torch.float32, CPU)
with mock.patch.object(model, "rotary", other):
    measure("rotation with theta 10,000", model)
layer_norms = [(layer.input_norm, layer.post_norm) for layer in model.layers]
for norm in (model.norm, *(norm for pair in layer_norms for norm in pair)):
    norm.eps = 1e-6
measure("norms with eps 1e-6", model)
