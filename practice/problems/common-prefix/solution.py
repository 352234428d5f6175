"""How much of a packed key does a node share with it?"""

from __future__ import annotations


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Both hold 4 bytes per token; a page has `page_bytes` bytes. Pages are compared from
    the beginning, and the first that differs, or is not whole in both, ends it.
    """
    same, differ = 0, min(len(other), len(key) - start) // page_bytes + 1
    while differ - same > 1:  # the first `same` pages are equal, the first `differ` not
        middle = (same + differ) // 2
        stretch = other[same * page_bytes : middle * page_bytes]
        if key.startswith(stretch, start + same * page_bytes):
            same = middle
        else:
            differ = middle
    return same * page_bytes
