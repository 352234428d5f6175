"""Turns every pair the other way: the two signs are exchanged."""

import math


def inv_freq(head_dim: int, theta: float) -> list[float]:
    """The angle by which one step of position turns each of the head_dim/2 pairs."""
    return [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]


def rotate(head: list[float], position: int, speeds: list[float]) -> list[float]:
    """`head`, each pair (head[i], head[i + D/2]) turned by position * speeds[i]."""
    half = len(head) // 2
    turned = list(head)
    for i, speed in enumerate(speeds):
        cos, sin = math.cos(position * speed), math.sin(position * speed)
        a, b = head[i], head[i + half]
        turned[i] = a * cos + b * sin
        turned[i + half] = b * cos - a * sin
    return turned
