"""Keys of the prefix tree: token ids packed into bytes, and the namespace they live in.

A packed key holds 4 bytes per token. Comparing two stretches of tokens is then one
`memcmp`, and the bytes of a page can be looked up in a dictionary as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from minisgl.errors import MiniSGLError

TOKEN_BYTES = array("i").itemsize  # 4 on every platform we run on
_SIGN_BYTE = TOKEN_BYTES - 1 if sys.byteorder == "little" else 0

Namespace = tuple[tuple[str, str], ...]


class InvalidKeyError(MiniSGLError, ValueError):
    """Token ids, slots or a namespace that the tree cannot hold."""


def namespace(**fields: str | None) -> Namespace | None:
    """What separates requests that must not share KV: a tenant's salt, an adapter, …

    Every field keeps its own tag, so `namespace(salt="ab", lora="c")` and
    `namespace(salt="a", lora="bc")` differ. A field that is None counts as not given;
    an empty string is a value like any other. Without fields the result is None, the
    namespace of plain requests.

    Raises InvalidKeyError for a value that is not a string.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidKeyError(
                f"namespace field {name} is {value!r}; give a string or None"
            )
    return tuple(sorted(given.items())) or None


class RadixKey:
    """Tokens in the form the tree compares, made once per request.

    `token_ids` are integers from 0 to 2**31 - 1; an `array('i')` is copied fastest.
    `extra_key` is None, a string, or what `namespace(...)` returns.

    Raises InvalidKeyError for anything else.
    """

    __slots__ = ("namespace", "packed")

    def __init__(
        self, token_ids: Sequence[int], extra_key: str | Namespace | None = None
    ) -> None:
        self.packed = to_int32(token_ids, "token_ids").tobytes()
        self.namespace = _to_namespace(extra_key)

    def __len__(self) -> int:
        """Length in tokens."""
        return len(self.packed) // TOKEN_BYTES

    def __repr__(self) -> str:
        return f"RadixKey({unpack(self.packed).tolist()}, {self.namespace})"


def _to_namespace(extra_key: str | Namespace | None) -> Namespace | None:
    if extra_key is None:
        return None
    if isinstance(extra_key, str):
        return namespace(extra_key=extra_key)
    pairs_of_str = isinstance(extra_key, tuple) and all(
        isinstance(pair, tuple) and [type(part) for part in pair] == [str, str]
        for pair in extra_key
    )
    if not pairs_of_str or len(dict(extra_key)) != len(extra_key):
        raise InvalidKeyError(
            f"extra_key is {extra_key!r}; give None, a string, or what namespace(...) "
            "returns"
        )
    return namespace(**dict(extra_key))


def to_int32(values: Sequence[int], name: str) -> array[int]:
    """`values` as an `array('i')`, itself if it is one.

    Raises InvalidKeyError, with the argument's `name`, unless all of them are integers
    from 0 to 2**31 - 1.
    """
    if not (isinstance(values, array) and values.typecode == "i"):
        try:
            values = array("i", values)
        except (TypeError, OverflowError, ValueError) as error:
            raise InvalidKeyError(
                f"{name} must be integers from 0 to 2**31 - 1: {error}"
            ) from error
    # a negative number has its top bit set, and a byte below 128 is ASCII
    if not values.tobytes()[_SIGN_BYTE::TOKEN_BYTES].isascii():
        raise InvalidKeyError(
            f"{name} contains {min(values)}; it must be integers from 0 to 2**31 - 1"
        )
    return values


def unpack(packed: bytes) -> array[int]:
    """The integers behind packed bytes."""
    values = array("i")
    values.frombytes(packed)
    return values


def common_prefix_bytes(key: bytes, start: int, other: bytes, page_bytes: int) -> int:
    """How many bytes, in whole pages, `other` shares with `key[start:]`.

    Halving: whether a stretch of pages is equal is one `memcmp`, so a difference among
    n pages is found with log2(n) of them, and only half of `other` is copied for the
    first. The length of the key does not matter, only that of `other`.
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
