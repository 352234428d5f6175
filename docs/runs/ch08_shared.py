"""Four chats behind one system prompt: what is computed, without and with the tree."""

import time

from helper import smollm2

from minisgl.core import SamplingParams
from minisgl.llm import LLM

SYSTEM = (
    "You answer questions about a small museum by the harbour. It opens at ten and "
    "closes at five, except on Mondays, when it stays closed. A ticket costs eight "
    "euros, children under twelve come in for free, and the first Sunday of a month "
    "costs nobody anything. The ships are on the ground floor, the maps on the first, "
    "and the instruments on the second. The model of the lighthouse stands in the "
    "stairwell; who wants to see it lit has to come at noon. There is a lift, and "
    "there are two wheelchairs to borrow. Bags larger than a sheet of paper go into "
    "a locker, which takes a coin and gives it back. Dogs wait outside, with water. "
    "The cafe sells soup, bread and cake, and closes half an hour before the rooms do. "
    "Guided tours begin at eleven and at three, last an hour, and need no booking. "
    "Answer in one short sentence, and be friendly. If you do not know the answer, say "
    "that you do not know it, and name the number of the office."
)
TURNS = (
    " Visitor: When do you open tomorrow? Answer:",
    " Visitor: What does it cost for my daughter and me? Answer:",
    " Visitor: Where are the old maps of the harbour? Answer:",
)
NAMES = ("Ada", "Bo", "Cleo", "Dan")
ANSWER = SamplingParams(max_tokens=8, ignore_eos=True)


def play(llm):
    """All four take their turns, one after another. Counts per turn, and all texts."""
    chats = [list(llm.tokenizer(f"{SYSTEM} I am {n}.").input_ids) for n in NAMES]
    counts, texts = [], []
    for line in TURNS:
        prompt_len = computed = 0
        for chat in chats:
            chat += llm.tokenizer(line).input_ids
            (result,) = llm.generate(chat, ANSWER)
            chat += result["token_ids"]
            prompt_len += result["prompt_tokens"]
            computed += result["computed_tokens"]
            texts.append(result["text"])
        counts.append((prompt_len, computed))
    return counts, texts


def time_prefills(engine):
    """From now on, a list of the processor time of each prefill, in seconds."""
    times, forward = [], engine.forward_batch

    def timed(batch):
        start = time.process_time()
        output = forward(batch)
        if batch.is_prefill:
            times.append(time.process_time() - start)
        return output

    engine.forward_batch = timed
    return times


def count_nodes(node):
    return sum(1 + count_nodes(child) for child in node.children.values())


counts, texts, seconds = {}, {}, {}
for cache_type in ("naive", "radix"):
    settings = dict(num_page_override=4096, cache_type=cache_type)
    with LLM(smollm2(), device="cpu", **settings) as llm:
        times = time_prefills(llm.engine)
        counts[cache_type], texts[cache_type] = play(llm)
        seconds[cache_type] = sum(times)
        cache = llm.scheduler.pages.prefix_cache
        held = len(cache.held_slots())
        num_nodes = count_nodes(cache.root_node) if cache_type == "radix" else 0

print("four chats behind one system prompt: tokens in the prompts, and computed")
print("turn   prompts   naive   radix")
rows = list(zip(counts["naive"], counts["radix"], strict=True))
for turn, ((prompt_len, naive), (_, radix)) in enumerate(rows, 1):
    print(f"{turn:4} {prompt_len:9,} {naive:7,} {radix:7,}")
total, naive = map(sum, zip(*counts["naive"], strict=True))
radix = sum(computed for _, computed in counts["radix"])
print(f" all {total:9,} {naive:7,} {radix:7,}")
print(f"processor time of the prefills: {seconds['naive'] / seconds['radix']:.1f} to 1")
print(f"the answers are the same: {texts['naive'] == texts['radix']}")
print(f"at the end the tree holds {held:,} tokens, in {num_nodes} nodes")
