"""Glues the values together to one string."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.radix_key import (
    TOKEN_BYTES,
    InvalidKeyError,
    RadixKey,
)


def namespace(**fields: str | None) -> str | None:
    given = {name: value for name, value in fields.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidKeyError(
                f"namespace field {name} is {value!r}; give a string or None"
            )
    return "".join(given.values()) or None


class RadixTree(radix_tree.RadixTree):
    def _child_key(self, key: RadixKey, pos: int) -> object:
        start = pos * TOKEN_BYTES
        first_page = key.packed[start : start + self._page_bytes]
        if pos == 0 and key.namespace is not None:
            return key.namespace, first_page
        return first_page
