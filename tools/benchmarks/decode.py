"""A decode step against transformers' `generate`, and against the least it can cost.

The floor multiplies every weight matrix of the model once by a batch of the same size.
A step reads all weights whatever else it does, so on a CPU nothing can be much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
import transformers

from minisgl.core import SamplingParams
from minisgl.device import synchronize
from minisgl.llm import LLM

PROMPT_LEN = 32  # tokens; a step's attention is over 33 to 64 tokens
NUM_STEPS = 31


@dataclass
class StepTimes:
    """Milliseconds of every step that was measured."""

    floor: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    generate: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float, float]:
        return median(self.floor), median(self.ours), median(self.generate)


class Subjects:
    """The same weights three times over: ours, transformers', and their matrices."""

    def __init__(
        self,
        model_dir: Path,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        self.llm = LLM(model_dir, dtype=dtype, device=device, memory_ratio=0.1)
        hf = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
        self.hf = hf.eval().to(self.device)
        self.matrices = weight_matrices(self.llm.engine.model)

    def measure(
        self, batch_size: int, rounds: int, advance: Callable[[], None]
    ) -> StepTimes:
        """Decode the same prompts `rounds` times, after a round to warm up.

        The three take turns at every token: whatever else the machine does meanwhile
        falls on all of them alike, and each finds the caches as the others left them.
        """
        times = StepTimes()
        for round_ in range(rounds + 1):
            measured = StepTimes()
            self._run(batch_size, measured)
            if round_ > 0:
                times.floor += measured.floor
                times.ours += measured.ours
                times.generate += measured.generate
            advance()
        return times

    def _run(self, batch_size: int, times: StepTimes) -> None:
        scheduler = self.llm.scheduler
        params = SamplingParams(max_tokens=NUM_STEPS + 1, ignore_eos=True)
        for prompt in prompts(batch_size):
            scheduler.add(prompt, params)
        scheduler.step()  # the prompts
        multiply = self._floor(batch_size)

        def others_turn() -> None:
            times.ours.append(timed(scheduler.step, self.device))
            times.floor.append(timed(multiply, self.device))

        clock = StepClock(self.device, times.generate, others_turn)
        ids = torch.tensor(prompts(batch_size), device=self.device)
        self.hf.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=NUM_STEPS + 1,
            max_new_tokens=NUM_STEPS + 1,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )

    def _floor(self, batch_size: int) -> Callable[[], None]:
        inputs = {
            matrix.shape[1]: torch.randn(
                batch_size, matrix.shape[1], dtype=self.dtype, device=self.device
            )
            for matrix in self.matrices
        }

        @torch.inference_mode()
        def multiply() -> None:
            for matrix in self.matrices:
                F.linear(inputs[matrix.shape[1]], matrix)

        return multiply


class StepClock(transformers.StoppingCriteria):
    """Notes how long `generate` takes from token to token, the first one excepted.

    Between two tokens it stops the clock and lets the others have their turn.
    """

    def __init__(
        self,
        device: torch.device,
        step_times: list[float],
        others_turn: Callable[[], None],
    ) -> None:
        self._device = device
        self._step_times = step_times
        self._others_turn = others_turn
        self._resumed_at: float | None = None

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        synchronize(self._device)
        if self._resumed_at is not None:
            self._step_times.append((perf_counter() - self._resumed_at) * 1e3)
        if len(self._step_times) < NUM_STEPS:
            self._others_turn()
        self._resumed_at = perf_counter()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def weight_matrices(model: Any) -> list[torch.Tensor]:
    """What every token is multiplied by, in the order of a forward."""
    matrices = []
    for layer in model.layers:
        linears = (
            layer.attention.qkv_proj,
            layer.attention.o_proj,
            layer.mlp.gate_up_proj,
            layer.mlp.down_proj,
        )
        matrices += [linear.weight for linear in linears]
    return [*matrices, model.lm_head.weight]


def prompts(batch_size: int) -> list[list[int]]:
    return [list(range(i + 1, i + 1 + PROMPT_LEN)) for i in range(batch_size)]


def timed(step: Callable[[], Any], device: torch.device) -> float:
    """Milliseconds that `step` takes until the device has done it."""
    synchronize(device)
    start = perf_counter()
    step()
    synchronize(device)
    return (perf_counter() - start) * 1e3
