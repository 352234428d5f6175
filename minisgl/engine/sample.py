"""From logits to tokens."""

from __future__ import annotations

from random import Random

import torch

from minisgl.core import Req


class Sampler:
    """Chooses one token per request, each by its own parameters.

    A request with a seed draws number n of its answer from (seed, n) alone. Neither
    the rest of the batch nor the requests before it can change what it draws.
    """

    def __init__(self) -> None:
        self._unseeded = Random()

    def sample(self, logits: torch.Tensor, reqs: list[Req]) -> torch.Tensor:
        """logits [len(reqs), vocab] -> token ids [len(reqs)], int64, same device."""
        tokens = logits.max(dim=-1).indices  # on a CPU twice as fast as argmax
        rows = [i for i, req in enumerate(reqs) if not req.sampling_params.is_greedy]
        if rows:
            drawn = [reqs[i] for i in rows]
            tokens[rows] = sample_rows(
                logits[rows],
                temperature=[r.sampling_params.temperature for r in drawn],
                top_k=[r.sampling_params.top_k for r in drawn],
                top_p=[r.sampling_params.top_p for r in drawn],
                uniform=[self._draw(r) for r in drawn],
            )
        return tokens

    def _draw(self, req: Req) -> float:
        seed = req.sampling_params.seed
        if seed is None:
            return self._unseeded.random()
        return Random(f"{seed}/{req.device_len - req.prompt_len}").random()


def sample_rows(
    logits: torch.Tensor,
    temperature: list[float],
    top_k: list[int],
    top_p: list[float],
    uniform: list[float],
) -> torch.Tensor:
    """Draw one token per row of `logits` [rows, vocab]; the lists have a value per row.

    Temperature first, then the `top_k` most likely (-1: all), then the smallest set of
    those that holds `top_p` of their probability; the order that transformers uses.
    `uniform` in [0, 1) picks from what is left, most likely token first.
    """

    def column(values: list[float] | list[int]) -> torch.Tensor:
        # float64: a sum of fifty thousand probabilities must not stop short of one
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    vocab = logits.shape[1]
    # No logit is above 0 then, so that no temperature, however small, gives inf - inf
    lowered = logits.double() - logits.amax(dim=-1, keepdim=True)
    scaled = lowered / column(temperature)
    probs, order = scaled.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocab, device=logits.device)
    kept = [min(k, vocab) if k > 0 else vocab for k in top_k]
    probs = probs.masked_fill(rank >= column(kept), 0)
    probs = probs / probs.sum(dim=-1, keepdim=True)
    before = probs.cumsum(dim=-1) - probs  # probability of all that is more likely
    probs = probs.masked_fill(before >= column(top_p), 0)
    cumulative = probs.cumsum(dim=-1)
    target = column(uniform) * cumulative[:, -1:]
    choice = (cumulative > target).int().argmax(dim=-1, keepdim=True)
    return order.gather(1, choice).squeeze(1)
