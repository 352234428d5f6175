"""Halves by looking at one page: an equal page behind a difference misleads it."""

from __future__ import annotations


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Both hold 4 bytes per token; a page has `page_bytes` bytes. Pages are compared from
    the beginning, and the first that differs, or is not whole in both, ends it.
    """
    num_pages = min(len(other), len(key) - start) // page_bytes
    same, differ = 0, num_pages + 1
    while differ - same > 1:
        middle = (same + differ) // 2
        left, right = (middle - 1) * page_bytes, middle * page_bytes
        if key[start + left : start + right] == other[left:right]:
            same = middle
        else:
            differ = middle
    return same * page_bytes
