"""The life of a request: three lengths that say all there is to know."""

from __future__ import annotations

from array import array

from minisgl.core import Batch, Context, Req, SamplingParams, get_global_ctx
from minisgl.errors import SamplingParamsError


def show(req: Req, what: str) -> None:
    later = req.max_device_len - req.device_len
    picture = "#" * req.cached_len + "o" * req.extend_len + "." * later
    lens = f"{req.cached_len:>6} {req.device_len:>6} {req.max_device_len:>4}"
    print(f"  {what:<24} {lens}   {picture}")


def new_req(uid: int, prompt: str, cached_len: int) -> Req:
    tokens = array("i", map(ord, prompt))  # a token per letter will do here
    return Req(tokens, uid, cached_len, 4, uid, SamplingParams(max_tokens=4))


req = new_req(1, "To be or no", cached_len=3)
print("A request: 11 tokens, of which 3 are cached; it may answer with 4")
print(f"{'cached device  max':>45}")
show(req, "admitted")
req.limit_chunk(5)
show(req, "only a slice of 5 fits")
req.complete_chunk()
show(req, "slice computed")
while req.can_decode:
    req.complete_one()
    req.append_host(ord("t to"[req.device_len - req.prompt_len - 1]))
    show(req, f"computed, sampled {chr(req.input_ids[-1])!r}")
print("  # KV in the pool   o the next forward computes it   . later")
print("  The last token was sampled but never computed: it has no KV.\n")

reqs = [new_req(2, "hello", cached_len=0), new_req(3, "hello world", cached_len=5)]
for phase in ("prefill", "decode"):
    batch = Batch(reqs, phase)
    parts = " + ".join(str(r.extend_len) for r in reqs)
    print(
        f"{phase} batch of {batch.size}: {parts} = {batch.num_tokens} tokens to compute"
    )
    for r in reqs:
        r.complete_one()

outer, inner = Context(page_size=1), Context(page_size=16)
print("\nWhere does the KV of the running forward live? Ask the context:")
with outer.forward_batch(batch):
    with inner.forward_batch(batch):
        print(f"  a forward inside a forward: page size {get_global_ctx().page_size}")
    print(f"  back in the outer forward: page size {get_global_ctx().page_size}")

try:
    SamplingParams(temperature=float("nan"))
except SamplingParamsError as error:
    print(f"\nRefused at the edge: {error}")
