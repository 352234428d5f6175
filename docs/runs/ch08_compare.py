"""Two runs of tokens that differ in the last one: three ways to find that out."""

import time
from array import array

import torch

from minisgl.kernel.torch_ops import fast_compare_key
from minisgl.kvcache.radix_key import RadixKey, common_prefix_bytes


def loop(x, y):
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        if a != b:
            return i
    return len(x)


def least_us(call, *args, repeats=300):
    """The least of many times: what other programs on the machine disturbed least."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        call(*args)
        best = min(best, time.perf_counter_ns() - start)
    return best / 1000


def row(length, *times):
    print(f"{length:8,}" + "".join(f"{us:10,.1f}" for us in times))


torch.set_num_threads(1)
print("µs to find a difference in the last token")
print("  tokens      loop   tensors     bytes")
for length in (16, 256, 4_096, 32_768):
    x = array("i", range(length))
    y = x[:-1] + array("i", [-1 % 2**31])
    tensors = torch.tensor(x), torch.tensor(y)
    key, other = RadixKey(x).packed, RadixKey(y).packed
    assert loop(x, y) == fast_compare_key(*tensors) == length - 1
    assert common_prefix_bytes(key, 0, other, 4) == 4 * (length - 1)
    row(
        length,
        least_us(loop, x, y),
        least_us(fast_compare_key, *tensors),
        least_us(common_prefix_bytes, key, 0, other, 4),
    )
same = bytes(bytearray(key))
assert same is not key
print(f"32,768 equal ones: {least_us(key.startswith, same, 0):.1f} with one memcmp")
