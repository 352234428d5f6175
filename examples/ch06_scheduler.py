"""Continuous batching: requests join when they come, and leave when they are done."""

from __future__ import annotations

import torch
from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.llm import LLM

llm = LLM(
    smollm2(),
    device="cpu",
    dtype=torch.float32,
    page_size=4,
    num_page_override=12,
    max_seq_len_override=64,
    max_running_req=4,
)
scheduler, pages = llm.scheduler, llm.scheduler.pages
arrivals = {  # step -> (name, prompt, tokens to answer with)
    1: [("A", "The capital of France is", 8), ("B", "Once upon a time", 3)],
    3: [("C", "1, 2, 3, 4,", 4)],
    4: [("D", "The days of the week are Monday, Tuesday, Wednesday,", 9)],
    5: [("E", "Roses are red", 3)],
}
names: dict[int, str] = {}
marks: dict[str, str] = {}
answers: dict[str, list[int]] = {}
free, step = "", 0
while arrivals or not scheduler.is_idle:
    step += 1
    for name, text, max_tokens in arrivals.pop(step, []):
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        names[scheduler.add(llm.tokenizer(text).input_ids, params)] = name
        marks[name], answers[name] = "   " * (step - 1), []
    running = {reply.uid: reply for reply in scheduler.step()}
    for uid, name in names.items():
        if uid in running:
            marks[name] += "d  " if answers[name] else "P  "
            answers[name].append(running[uid].token)
        elif uid in scheduler.decode.running or not answers[name]:
            marks[name] += ".  "
    free += f"{pages.num_available:<3}"

print("P its prompt is computed   d one more token   . it waits\n")
print(f"step  {''.join(f'{n:<3}' for n in range(1, step + 1))}")
for name, row in marks.items():
    print(f"{name:<5} {row:<{3 * step - 1}}  {llm.tokenizer.decode(answers[name])!r}")
print(f"free  {free}  of {pages.allocator.num_pages} pages")
print("D waited until all the pages it may ever need were there; E did not pass it.\n")

good, bad = llm.generate(["2 + 2 =", ""], SamplingParams(max_tokens=4))
print(f"{good['text']!r} has {len(good['token_ids'])} tokens and ended by ", end="")
print(f"{good['finish_reason']!r}\nits neighbour failed alone: {bad['error']}")
chunks = llm.stream("🙂🎉🙂🎉🙂🎉", SamplingParams(max_tokens=6))
print("streamed:", " ".join(repr(chunk.text) for chunk in chunks))
llm.shutdown()
