"""The gated delta rule for one prompt: token by token, and in chunks."""

import time

import torch

from minisgl.layers.gated_delta import CHUNK, delta_step, gated_delta_rule

TOKENS, HEADS, DIM = 512, 8, 64

torch.manual_seed(0)
q, k, v = torch.randn(3, TOKENS, HEADS, DIM)
k = torch.nn.functional.normalize(k, dim=-1)
log_decay, beta = -torch.rand(TOKENS, HEADS) / 10, torch.rand(TOKENS, HEADS)
zero = torch.zeros(HEADS, DIM, DIM)


def by_steps():
    outs, state = [], zero[None]
    for i in range(TOKENS):
        now = (x[i : i + 1] for x in (q, k, v, log_decay, beta))
        out, state = delta_step(*now, state)
        outs.append(out)
    return torch.cat(outs), state[0]


def in_chunks():
    return gated_delta_rule(q, k, v, log_decay, beta, zero)


def best_of(what):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


largest = max((a - b).abs().max() for a, b in zip(by_steps(), in_chunks(), strict=True))
steps, chunks = best_of(by_steps), best_of(in_chunks)
print(f"{TOKENS} tokens, {HEADS} heads of {DIM}, float32")
print(f"one by one: {TOKENS} steps that wait for each other, {steps * 1e3:.0f} ms")
print(f"in chunks:  {TOKENS // CHUNK} of them, {chunks * 1e3:.1f} ms")
print(f"chunks are {steps / chunks:.0f} times as fast on a CPU")
print(f"largest difference: {largest:.0e}")
