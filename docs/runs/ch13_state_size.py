"""How large a state is, for the sizes that transformers gives Qwen3.5 by default."""

from types import SimpleNamespace

import torch
from transformers import Qwen3_5TextConfig

from minisgl.kvcache.mha_pool import kv_bytes_per_token
from minisgl.kvcache.state_pool import LINEAR, StateShape

KIB, MIB, GIB = 2**10, 2**20, 2**30
DTYPE = torch.bfloat16

hf = Qwen3_5TextConfig()
shape = StateShape.of(SimpleNamespace(hf=hf, layer_types=hf.layer_types))
num_full = hf.layer_types.count("full_attention")
print(
    f"{hf.num_hidden_layers} layers, {hf.layer_types.count(LINEAR)} of them linear and "
    f"{num_full} full; bfloat16"
)

recurrent = shape.num_layers * shape.num_heads * shape.key_dim * shape.value_dim * 4
state = shape.num_bytes(DTYPE)
print("\nin a layer, a state is")
matrices = recurrent / shape.num_layers / MIB
conv = (state - recurrent) / shape.num_layers / MIB
print(f"  the matrices of its heads            {matrices:.2f} MiB")
print(f"  what its convolution looks at        {conv:.2f} MiB")


def kv(num_layers):
    return kv_bytes_per_token(num_layers, hf.num_key_value_heads, hf.head_dim, DTYPE)


token, token_all = kv(num_full), kv(hf.num_hidden_layers)
print(f"\none state, all layers                  {state / MIB:.1f} MiB")
print(f"KV of one token, full layers           {token // KIB} KiB")
print(f"KV of one token, if all were full      {token_all // KIB} KiB")
print(f"a state takes as much as the KV of {state / token:,.0f} tokens")
print(
    "the model takes less memory than one with full layers only from "
    f"{state // (token_all - token) + 1:,} tokens on"
)

LENGTH = 8192
print(f"\na prompt of {LENGTH:,} tokens")
print(f"  a state every 64 tokens takes        {LENGTH // 64 * state / GIB:.2f} GiB")
print(f"  the KV of the prompt itself takes    {LENGTH * token / GIB:.2f} GiB")
