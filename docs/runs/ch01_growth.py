"""Tokens that are computed for one answer: a Req counts what each forward computes."""

from array import array

from minisgl.core import Req, SamplingParams


def computed(prompt_len: int, output_len: int, forget: bool) -> int:
    prompt = array("i", bytes(4 * prompt_len))  # which tokens does not matter
    req = Req(prompt, 0, 0, output_len, uid=0, sampling_params=SamplingParams())
    total = 0
    while req.can_decode:
        if forget:
            req.cached_len = 0
        total += req.extend_len
        req.complete_one()
    return total


print("prompt + answer   all each time   only the new ones")
for prompt_len, output_len in [(36, 24), (500, 500), (4000, 1000)]:
    every = computed(prompt_len, output_len, forget=True)
    new = computed(prompt_len, output_len, forget=False)
    print(f"{prompt_len:>6,} + {output_len:<6,}   {every:>13,}   {new:>17,}")
