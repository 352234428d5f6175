"""Random traffic for a real engine, and what is to be seen while it is served."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tiny_models import VOCAB_SIZE, build_tiny, hf_greedy, load_hf

from minisgl.core import Batch, SamplingParams
from minisgl.llm import LLM

MAX_STEPS = 2000  # far more than any test needs


def new_llm(model_dir: Path, **settings: Any) -> LLM:
    small = dict(
        device="cpu",
        dtype=torch.float32,
        max_running_req=8,
        max_seq_len_override=128,
        num_page_override=256,
    )
    return LLM(model_dir, **{**small, **settings})


def greedy(max_tokens: int, **given: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **given)


@dataclass(frozen=True)
class Forward:
    phase: str
    uids: list[int]
    lens: list[int]  # tokens computed for each
    slots: list[list[int]]  # that their KV was written to

    def __str__(self) -> str:
        return f"{self.phase} {self.uids}"


class EngineRecorder:
    """The engine, with a note of each forward."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.forwards: list[Forward] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def forward_batch(self, batch: Batch) -> Any:
        uids = [req.uid for req in batch.reqs]
        lens = [req.extend_len for req in batch.reqs]
        output = self._engine.forward_batch(batch)
        slots = [part.tolist() for part in batch.out_loc.split(lens)]
        self.forwards.append(Forward(batch.phase, uids, lens, slots))
        return output


def record(llm: LLM) -> list[Forward]:
    """The forwards of this LLM from now on, as they come."""
    recorder = EngineRecorder(llm.scheduler.engine)
    llm.scheduler.engine = recorder
    return recorder.forwards


def replies_until_idle(llm: LLM) -> Iterator[Any]:
    """Step until nothing is left to do, with a look at the pages after each step."""
    for _ in range(MAX_STEPS):
        if llm.scheduler.is_idle:
            return
        yield from llm.scheduler.step()
        llm.scheduler.pages.check_integrity()
    raise AssertionError("requests wait, and nothing runs")


@dataclass(frozen=True)
class Arrival:
    """A request of the traffic, when it comes, and how Hugging Face answers it."""

    step: int
    prompt: list[int]
    max_tokens: int
    answer: list[int]


EOS = [5, 23, 77, 110, 140]  # enough for some answers to end early


def build_eos_model(root: Path, name: str = "qwen3") -> Path:
    return build_tiny(name, root, eos_token_id=EOS)


@cache
def reference_traffic(name: str = "qwen3") -> tuple[Arrival, ...]:
    """Sixty requests for the model of `build_eos_model`, and their answers."""
    with TemporaryDirectory() as root:
        model = load_hf(build_eos_model(Path(root), name))
        traffic = random_traffic(model, 60, seed=1)
    stopped = [len(arrival.answer) < arrival.max_tokens for arrival in traffic]
    assert any(stopped) and not all(stopped)
    return tuple(traffic)


def random_traffic(hf_model: Any, count: int, seed: int) -> list[Arrival]:
    """Requests that share beginnings: a few openings with new questions, earlier
    conversations that go on, and some of them once more."""
    rng = random.Random(seed)

    def tokens(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(low, high))]

    openings = [tokens(3, 24) for _ in range(4)]
    openings += [openings[0] + tokens(4, 9), openings[1] + tokens(4, 9)]
    traffic: list[Arrival] = []
    step = 0
    for _ in range(count):
        kind = rng.random()
        earlier = rng.choice(traffic) if traffic else None
        if earlier is None or kind < 0.6:
            prompt = rng.choice(openings) + tokens(1, 12)
        elif kind < 0.85 and len(earlier.prompt) < 40:
            prompt = earlier.prompt + earlier.answer + tokens(1, 6)
        else:
            prompt = list(earlier.prompt)
        max_tokens = rng.choice([1, 2, 3, 5, 8, 13, 16])
        answer = hf_greedy(hf_model, prompt, max_tokens)
        traffic.append(Arrival(step, prompt, max_tokens, answer))
        step += rng.choice([0, 0, 1, 2, 4])
    return traffic


@dataclass
class Served:
    """What came back for each request, in the order of the traffic."""

    tokens: list[list[int]]
    reasons: list[str | None]
    reused: list[int]  # tokens taken from the cache


def serve(
    llm: LLM,
    traffic: Sequence[Arrival],
    abort_at: dict[int, int] | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> Served:
    """Play the traffic step by step; request i is aborted before step abort_at[i]."""
    scheduler, abort_at = llm.scheduler, abort_at or {}
    served = Served([[] for _ in traffic], [None] * len(traffic), [0] * len(traffic))
    coming = deque(enumerate(traffic))
    index_of: dict[int, int] = {}
    step = 0
    while coming or not scheduler.is_idle:
        while coming and coming[0][1].step <= step:
            index, arrival = coming.popleft()
            uid = scheduler.add(arrival.prompt, greedy(arrival.max_tokens))
            index_of[uid] = index
        for uid, index in index_of.items():
            if abort_at.get(index) == step and scheduler.abort(uid):
                served.reasons[index] = "abort"
        for reply in scheduler.step():
            index = index_of[reply.uid]
            assert served.reasons[index] is None, "a token for a request that ended"
            served.tokens[index].append(reply.token)
            served.reasons[index] = reply.finish_reason
            served.reused[index] = reply.reused_len
        after_step()
        step += 1
        assert step < MAX_STEPS, "requests wait, and nothing runs"
    return served
