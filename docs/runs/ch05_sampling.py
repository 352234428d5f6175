"""What it costs to draw a token instead of taking the most likely one."""

from time import process_time

import torch

from minisgl.engine.sample import sample_rows

ROWS, VOCAB = 16, 49_152  # the vocabulary of SmolLM2
torch.manual_seed(0)
logits = 3 * torch.randn(ROWS, VOCAB)


def best_ms(function):
    times = []
    for _ in range(5):
        start = process_time()
        function()
        times.append(process_time() - start)
    return 1000 * min(times)


def draw():
    sample_rows(logits, [0.8] * ROWS, [-1] * ROWS, [0.95] * ROWS, [0.5] * ROWS)


most_likely = best_ms(lambda: logits.max(dim=-1))
argmax = best_ms(lambda: logits.argmax(dim=-1))
print(f"{ROWS} rows of {VOCAB:,} logits, CPU time of one thread")
print(f"  max                      {most_likely:5.1f} ms")
print(f"  argmax                   {argmax:5.1f} ms")
print(f"  temperature, top-p, draw {best_ms(draw):5.1f} ms")
