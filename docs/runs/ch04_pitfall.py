"""A prefix hit with the causal mask that PyTorch offers, and with ours."""

from array import array

import torch
import torch.nn.functional as F
from helper import smollm2
from transformers import AutoTokenizer

from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.registry import load_model

TEXT = """Every great city has a river. Paris lies on the Seine, Rome on the Tiber,
Vienna on the Danube, London on the Thames, Cairo on the Nile and Lyon on the Rhone.
"""
CPU, FLOAT = torch.device("cpu"), torch.float32


class CarelessBackend(TorchBackend):
    """Prefill with `is_causal=True`; one request in a batch."""

    def forward(self, q, k, v, layer_id, batch):
        self.kv_cache.store_kv(k, v, batch.out_loc, layer_id)
        [span] = batch.attn_metadata
        keys = self.kv_cache.k_cache(layer_id)[span.slots]
        values = self.kv_cache.v_cache(layer_id)[span.slots]
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            is_causal=True,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).contiguous()


tokenizer = AutoTokenizer.from_pretrained(smollm2())
model = load_model(smollm2(), FLOAT, CPU)
c = model.config
sizes = dict(num_layers=c.num_layers, num_kv_heads=c.num_kv_heads, head_dim=c.head_dim)
pool = MHAKVPool(**sizes, num_pages=64, page_size=1, dtype=FLOAT, device=CPU)
tables = ReqTable(num_rows=1, max_len=64, device=CPU)
tables.write_slots(0, 0, range(64))
shared = len(tokenizer(TEXT).input_ids)


def next_word(backend, question, cached_len):
    tokens = array("i", tokenizer(TEXT + question).input_ids)
    tables.write_tokens(0, 0, tokens)
    batch = Batch([Req(tokens, 0, cached_len, 1, 0, SamplingParams())], "prefill")
    ctx = Context()
    ctx.attn_backend = backend(pool, tables.page_table, FLOAT)
    tables.fill_batch(batch)
    ctx.attn_backend.prepare_metadata(batch)
    with torch.inference_mode(), ctx.forward_batch(batch):
        return tokenizer.decode(model.forward(batch)[0].argmax())


for name, backend in (
    ("is_causal=True", CarelessBackend),
    ("the mask of this chapter", TorchBackend),
):
    print(name)
    for question in ("The Thames flows through the city of", "Cairo lies on the"):
        print(f"  {question}")
        for cached_len in (0, shared):
            word = next_word(backend, question, cached_len)
            print(f"    {cached_len:>2} tokens cached: {word}")
