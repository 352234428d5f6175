"""Request traces for a prefix cache: who asks for which tokens, in which order."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

VOCAB_SIZE = 32_000


@dataclass(frozen=True)
class Trace:
    """Prompts in the order they arrive, and the size of the pool, in tokens."""

    name: str
    title: str
    pool_size: int
    prompts: list[array[int]]


def build_trace(name: str, shrink: int = 1) -> Trace:
    """One of the traces "a" to "e"; `shrink` divides lengths, counts and the pool."""
    title, pool_size, make = TRACES[name]
    prompts = make(random.Random(f"trace {name}"), shrink)
    return Trace(name, title, pool_size // shrink, list(prompts))


def _text(rng: random.Random, num_tokens: int) -> array[int]:
    return array("i", rng.choices(range(VOCAB_SIZE), k=num_tokens))


def _system_prompt(rng: random.Random, shrink: int) -> Iterator[array[int]]:
    """2,000 tokens that all share, and a question of 200 tokens for each."""
    system = _text(rng, 2_000 // shrink)
    for _ in range(2_000 // shrink):
        yield system + _text(rng, 200 // shrink)


def _conversations(rng: random.Random, shrink: int) -> Iterator[array[int]]:
    """64 conversations of 20 turns of 150 tokens, in a new order every turn."""
    chats = [array("i") for _ in range(64 // shrink)]
    for _ in range(20):
        for chat in rng.sample(chats, len(chats)):
            chat.extend(_text(rng, 150 // shrink))
            yield chat[:]


def _few_shot(rng: random.Random, shrink: int) -> Iterator[array[int]]:
    """Six levels of examples, four to choose from at each, then a question."""
    examples: dict[tuple[int, ...], array[int]] = {}
    for _ in range(2_000 // shrink):
        path: tuple[int, ...] = ()
        prompt = array("i")
        for _ in range(6):
            path += (rng.randrange(4),)
            if path not in examples:
                examples[path] = _text(rng, 120 // shrink)
            prompt += examples[path]
        yield prompt + _text(rng, 40 // shrink)


def _agents(rng: random.Random, shrink: int) -> Iterator[array[int]]:
    """32 agents; each step adds what a tool returned: 30 steps of 1,000 tokens."""
    histories = [array("i") for _ in range(32 // shrink)]
    for _ in range(30):
        for history in rng.sample(histories, len(histories)):
            history.extend(_text(rng, 1_000 // shrink))
            yield history[:]


def _many_conversations(rng: random.Random, shrink: int) -> Iterator[array[int]]:
    """512 conversations of up to 20 turns; some are busier, so that some still hit."""
    chats = [array("i") for _ in range(512 // shrink)]
    weights = [1 / (rank + 10) for rank in range(len(chats))]
    for _ in range(4_000 // shrink):
        number = rng.choices(range(len(chats)), weights)[0]
        if len(chats[number]) >= 20 * (150 // shrink):  # it ends, another one begins
            chats[number] = array("i")
        chats[number].extend(_text(rng, 150 // shrink))
        yield chats[number][:]


TRACES = {
    "a": ("system prompt", 500_000, _system_prompt),
    "b": ("64 chats", 500_000, _conversations),
    "c": ("few-shot tree", 500_000, _few_shot),
    "d": ("32 agents", 1_500_000, _agents),
    "e": ("512 chats", 100_000, _many_conversations),
}
