from __future__ import annotations


def delta_step(
    q: list[float],
    k: list[float],
    v: list[float],
    decay: float,
    beta: float,
    state: list[list[float]],
) -> tuple[list[float], list[list[float]]]:
    """One token: (out, the new state)."""
    raise NotImplementedError("gated-delta-step: delta_step")


def delta_chunk(
    q: list[list[float]],
    k: list[list[float]],
    v: list[list[float]],
    decay: list[float],
    beta: list[float],
    state: list[list[float]],
) -> tuple[list[list[float]], list[list[float]]]:
    """All tokens of a chunk: (an out for each, the state after the last)."""
    raise NotImplementedError("gated-delta-step: delta_chunk")
