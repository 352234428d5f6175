"""The same requests three ways: one by one, batch after batch, and continuously.

A line is a row of the tables and a column a step: the letter of the request that gets
a token (a capital for its prompt), "-" for one that waits for others' prompts, and "."
for a row that nobody has.
"""

import random
from statistics import mean
from time import process_time

import torch
from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.llm import LLM

ROWS, LETTERS = 4, "abcdefghijklmnop"
rng = random.Random(0)
texts = ["Once upon a time", "The capital of France is", "2 + 2 =", "Roses are red"]
lens = [2 + min(40, int(rng.expovariate(1 / 10))) for _ in LETTERS]
llm = LLM(
    smollm2(),
    device="cpu",
    dtype=torch.float32,
    max_running_req=ROWS,
    num_page_override=256,
)
scheduler = llm.scheduler


def add(index):
    params = SamplingParams(max_tokens=lens[index], ignore_eos=True)
    prompt = llm.tokenizer(texts[index % len(texts)]).input_ids
    return scheduler.add(prompt, params)


def step(index_of, answers, drawn):
    """One step of the scheduler, and one more column of the drawing."""
    before = dict(scheduler.decode.running)
    replies = {reply.uid: reply.token for reply in scheduler.step()}
    column = ["."] * ROWS
    for uid, req in (before | scheduler.pages.live).items():
        letter = LETTERS[index_of[uid]] if uid in replies else "-"
        column[req.table_idx] = letter if uid in before else letter.upper()
    for uid, token in replies.items():
        answers[index_of[uid]].append(token)
    for line, mark in zip(drawn, column, strict=True):
        line.append(mark)


def serve(size):
    """Bring `size` requests at a time, and the next when all of those have ended."""
    index_of, ends, start = {}, {}, process_time()
    answers, drawn = [[] for _ in LETTERS], [[] for _ in range(ROWS)]
    for first in range(0, len(LETTERS), size):
        for index in range(first, first + size):
            index_of[add(index)] = index
        while not scheduler.is_idle:
            step(index_of, answers, drawn)
            for index, answer in enumerate(answers):
                if len(answer) == lens[index]:
                    ends.setdefault(index, len(drawn[0]))
    return answers, drawn, mean(ends.values()), process_time() - start


print(f"{len(LETTERS)} requests, {sum(lens)} tokens in all, {ROWS} rows")
expected = None
for name, size in (("one by one", 1), ("static", ROWS), ("continuous", len(LETTERS))):
    runs = [serve(size) for _ in range(3)]
    answers, drawn, end, _ = runs[0]
    assert expected in (None, answers), "the order has changed an answer"
    expected = answers
    steps, seconds = len(drawn[0]), min(run[3] for run in runs)
    if size > 1:
        print("\n" + "\n".join("".join(line) for line in drawn))
    parts = {mark: sum(line.count(mark) for line in drawn) for mark in ".-"}
    empty, waiting = (100 * part / (ROWS * steps) for part in parts.values())
    print(
        f"{name}: {steps} steps, rows {empty:.0f} % empty and {waiting:.0f} % waiting"
    )
    print(
        f"{' ' * len(name)}  an answer is complete at step {end:.0f} on average", end=""
    )
    print(f"; {seconds:.1f} s of processor time")
print("\nall three gave the same answers")
