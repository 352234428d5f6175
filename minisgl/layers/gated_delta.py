"""The gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).

Instead of a key and a value for every token, a head remembers one matrix S, which takes
a key to a value. Each token lets S fade, reads what S holds under the token's key,
corrects that towards the token's value, and reads out the answer to its query:

    S = decay * S                       0 < decay < 1, by token and head
    S = S + beta * k (v - Sᵀk)ᵀ         0 < beta < 1, how much to correct
    out = Sᵀq

`delta_step` does just that, for one token of many requests. `gated_delta_rule` does it
for many tokens of one request, 64 at a time: within a chunk, the corrections depend on
one another only through a small triangular system, and the rest is matrix products.
"""

from __future__ import annotations

import torch

CHUNK = 64


def delta_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of each request: the recurrence as it is written.

    q, k [batch, heads, key_dim], v [batch, heads, value_dim], log_decay and beta
    [batch, heads], state [batch, heads, key_dim, value_dim], all float32. Returns
    (out [batch, heads, value_dim], the new state).
    """
    state = state * log_decay.exp()[..., None, None]
    held = torch.einsum("bhk,bhkv->bhv", k, state)
    correction = beta[..., None] * (v - held)
    state = state + k[..., :, None] * correction[..., None, :]
    return torch.einsum("bhk,bhkv->bhv", q, state), state


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """All tokens of one request, one after the other, in chunks.

    q, k [tokens, heads, key_dim], v [tokens, heads, value_dim], log_decay and beta
    [tokens, heads], state [heads, key_dim, value_dim], all float32. Returns (out
    [tokens, heads, value_dim], the state after the last token).
    """
    out = torch.empty_like(v)
    for start in range(0, len(q), CHUNK):
        part = slice(start, start + CHUNK)
        chunk = (x[part].transpose(0, 1) for x in (q, k, v, log_decay, beta))
        out_chunk, state = delta_chunk(*chunk, state)
        out[part] = out_chunk.transpose(0, 1)
    return out, state


def delta_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One chunk, heads first: q [heads, tokens, key_dim], log_decay [heads, tokens], …

    Token i sees the state at the start, faded by all decays up to its own, and the
    corrections c_j of the tokens before it, each faded from j to i. So

        c_i = beta_i (v_i - fade_i Sᵀk_i - sum over j < i of fade_ij (k_j·k_i) c_j)

    which is a triangular system for the c; then out and the new state are sums of them.
    """
    total = log_decay.cumsum(-1)  # from the start of the chunk
    from_start = total.exp()[..., None]
    # fade[i, j] from token j to token i; above the diagonal it may overflow, and is cut
    fade = (total[..., :, None] - total[..., None, :]).exp().tril()

    overlap = beta[..., None] * fade * (k @ k.transpose(-1, -2))
    fresh = beta[..., None] * (v - from_start * (k @ state))
    # only what is below the diagonal is read, and the diagonal taken to be one
    corrections = torch.linalg.solve_triangular(
        overlap, fresh, upper=False, unitriangular=True
    )
    out = from_start * (q @ state) + (fade * (q @ k.transpose(-1, -2))) @ corrections
    to_end = (total[..., -1:] - total).exp()[..., None]
    new = (to_end * k).transpose(-1, -2) @ corrections
    return out, from_start[..., -1:, :] * state + new
