"""Rotary position embedding of one head, in plain floats."""


def inv_freq(head_dim: int, theta: float) -> list[float]:
    """The angle by which one step of position turns each of the head_dim/2 pairs."""
    raise NotImplementedError("rotary-positions: inv_freq")


def rotate(head: list[float], position: int, speeds: list[float]) -> list[float]:
    """`head`, each pair (head[i], head[i + D/2]) turned by position * speeds[i]."""
    raise NotImplementedError("rotary-positions: rotate")
