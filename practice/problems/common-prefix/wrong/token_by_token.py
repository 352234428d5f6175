"""Looks at one byte after the other: right, and hundreds of times slower."""

from __future__ import annotations


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Both hold 4 bytes per token; a page has `page_bytes` bytes. Pages are compared from
    the beginning, and the first that differs, or is not whole in both, ends it.
    """
    shared = 0
    end = min(len(other), len(key) - start) // page_bytes * page_bytes
    while shared < end and key[start + shared] == other[shared]:
        shared += 1
    return shared // page_bytes * page_bytes
