"""The decays between two tokens are the quotient of two running products."""

from __future__ import annotations


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _mix(weights: list[float], rows: list[list[float]]) -> list[float]:
    """The weighted sum of rows; with the rows of a state, what it holds for a key."""
    return [_dot(weights, column) for column in zip(*rows, strict=True)]


def delta_step(
    q: list[float],
    k: list[float],
    v: list[float],
    decay: float,
    beta: float,
    state: list[list[float]],
) -> tuple[list[float], list[list[float]]]:
    state = [[decay * x for x in row] for row in state]
    held = _mix(k, state)
    c = [beta * (new - old) for new, old in zip(v, held, strict=True)]
    state = [
        [x + key * change for x, change in zip(row, c, strict=True)]
        for key, row in zip(k, state, strict=True)
    ]
    return _mix(q, state), state


def delta_chunk(
    q: list[list[float]],
    k: list[list[float]],
    v: list[list[float]],
    decay: list[float],
    beta: list[float],
    state: list[list[float]],
) -> tuple[list[list[float]], list[list[float]]]:
    outs: list[list[float]] = []
    corrections: list[list[float]] = []
    from_start = 1.0
    totals: list[float] = []
    fade: list[float] = []

    def read(key: list[float]) -> list[float]:
        weights = [from_start * x for x in key]
        weights += [left * _dot(past, key) for left, past in zip(fade, k, strict=False)]
        return _mix(weights, [*state, *corrections])

    for i in range(len(q)):
        from_start *= decay[i]
        totals.append(from_start)
        fade = [from_start / total for total in totals[:-1]]
        held = read(k[i])
        c = [beta[i] * (new - old) for new, old in zip(v[i], held, strict=True)]
        corrections.append(c)
        fade.append(1.0)
        outs.append(read(q[i]))
    weights = [
        [left * key[d] for left, key in zip(fade, k, strict=True)]
        for d in range(len(state))
    ]
    new_state = [
        _mix([from_start, *weights[d]], [row, *corrections])
        for d, row in enumerate(state)
    ]
    return outs, new_state
