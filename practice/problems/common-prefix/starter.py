"""How much of a packed key does a node share with it?"""

from __future__ import annotations


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Both hold 4 bytes per token; a page has `page_bytes` bytes. Pages are compared from
    the beginning, and the first that differs, or is not whole in both, ends it.
    """
    raise NotImplementedError("common-prefix: common_prefix_bytes")
