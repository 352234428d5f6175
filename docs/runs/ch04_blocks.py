"""Attention of one long prompt: written out, and a block of queries at a time."""

from time import process_time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minisgl.attention.dense import dense_attention
from minisgl.attention.torch_backend import PrefillSpan, attend_prefill

HEADS, KV_HEADS, DIM = 9, 3, 64  # one layer of SmolLM2


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operation makes."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.num_bytes = max(self.num_bytes, out.nbytes)
        return out


torch.manual_seed(0)
print("  tokens   largest tensor in MiB: written out   in blocks   speed")
for length in (500, 1000, 2000):
    q, k, v = (torch.randn(length, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
    slots = torch.randperm(length)
    keys, values = k[slots.argsort()], v[slots.argsort()]
    span = PrefillSpan(0, length, 0, slots)
    times, sizes, outputs = [], [], []
    for form in (
        lambda q=q, k=k, v=v: dense_attention(q, k, v),
        lambda q=q, k=keys, v=values, span=span: attend_prefill(q, k, v, span),
    ):
        with torch.inference_mode(), Largest() as largest:
            outputs.append(form())
        start = process_time()
        form()
        times.append(process_time() - start)
        sizes.append(largest.num_bytes / 2**20)
    assert torch.allclose(*outputs, atol=1e-5)
    faster = times[0] / times[1]
    print(f"{length:>8,} {sizes[0]:>35.1f} {sizes[1]:>11.1f} {faster:>5.1f} x")
