"""A second question about the same text computes only what is new."""

from __future__ import annotations

import time
from array import array

import torch
from helper import measured, smollm2
from transformers import AutoTokenizer

from minisgl.attention.torch_backend import TorchBackend
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.page_allocator import slots_of_pages
from minisgl.kvcache.req_table import ReqTable
from minisgl.models.registry import load_model

PAGE, CPU, FLOAT = 16, torch.device("cpu"), torch.float32
TEXT = """Every great city has a river. Paris lies on the Seine, Rome on the Tiber,
Vienna on the Danube, London on the Thames, Cairo on the Nile, Baghdad on the Tigris,
Budapest on the Danube, Prague on the Vltava, Warsaw on the Vistula, Cologne on the
Rhine, Lyon on the Rhone, Seville on the Guadalquivir and Lisbon on the Tagus.
"""
model_dir = smollm2()
tokenizer = AutoTokenizer.from_pretrained(model_dir)
model = load_model(model_dir, FLOAT, CPU)
c = model.config
sizes = dict(num_layers=c.num_layers, num_kv_heads=c.num_kv_heads, head_dim=c.head_dim)
pool = MHAKVPool(**sizes, num_pages=64, page_size=PAGE, dtype=FLOAT, device=CPU)
tables = ReqTable(num_rows=3, max_len=8 * PAGE, device=CPU)
ctx = Context(page_size=PAGE)
ctx.attn_backend = TorchBackend(pool, tables.page_table, FLOAT)


def ask(row: int, question: str, pages: list[int], cached_len: int) -> torch.Tensor:
    tokens = array("i", tokenizer(TEXT + question).input_ids)
    tables.write_tokens(row, 0, tokens)
    tables.write_slots(row, 0, slots_of_pages(pages, PAGE))
    batch = Batch([Req(tokens, row, cached_len, 1, row, SamplingParams())], "prefill")
    start = time.perf_counter()
    tables.fill_batch(batch)
    ctx.attn_backend.prepare_metadata(batch)
    with torch.inference_mode(), ctx.forward_batch(batch):
        logits = model.forward(batch)[0]
    spent = measured(1000 * (time.perf_counter() - start), "ms")
    answer = tokenizer.decode(logits.argmax()).upper()
    print(f"{cached_len:>7} {batch.num_tokens:>9} {spent:>9}   {question}{answer}")
    return logits


shared = len(tokenizer(TEXT).input_ids) // PAGE  # whole pages
print(" cached  computed      time   the text, and then: a question and its NEXT WORD")
ask(0, "The Thames flows through the city of", [0, 1, 2, 3, 4, 5, 6], 0)
full = ask(1, "Vienna lies on the", [7, 8, 9, 10, 11, 12, 13], 0)
hit = ask(2, "Vienna lies on the", [0, 1, 2, 3, 4, 14, 15], shared * PAGE)
close = "yes" if (full - hit).abs().max() < 1e-3 else "no"
print(f"\nThe third request reads {shared} pages that the first one wrote.")
print(f"Its logits are those of the full computation: {close}")
