"""Counts tokens, not whole pages: a match may end inside a page."""

from __future__ import annotations


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Both hold 4 bytes per token; a page has `page_bytes` bytes. Pages are compared from
    the beginning, and the first that differs, or is not whole in both, ends it.
    """
    same, differ = 0, min(len(other), len(key) - start) // 4 + 1
    while differ - same > 1:
        middle = (same + differ) // 2
        if key.startswith(other[same * 4 : middle * 4], start + same * 4):
            same = middle
        else:
            differ = middle
    return same * 4
