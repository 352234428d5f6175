"""A prefix cache without a tree: full blocks, found by a chain of hashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from minisgl.errors import PoolError


class Allocation(NamedTuple):
    """What a request got."""

    blocks: list[int]  # in the order of its tokens
    cached_len: int  # tokens whose KV is there already, in whole blocks


class HashedBlockCache:
    """Blocks 0 to `num_blocks` - 1 of `block_size` tokens each, all free at first.

    `hash_function` takes a tuple (hash of the block before or None, tokens of the block
    as a tuple, extra_key) and returns an int. Two tuples may have the same hash.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        hash_function: Callable[[tuple], int] = hash,
    ) -> None:
        raise NotImplementedError("hashed-blocks: __init__")

    @property
    def num_free(self) -> int:
        """Blocks that no request holds, whether something is stored in them or not."""
        raise NotImplementedError("hashed-blocks: num_free")

    def match(self, tokens: Sequence[int], extra_key: str | None = None) -> list[int]:
        """The blocks that hold the longest stored prefix of `tokens`.

        Full blocks, from the first to the last before one that is not stored. Changes
        nothing.
        """
        raise NotImplementedError("hashed-blocks: match")

    def allocate(
        self, tokens: Sequence[int], extra_key: str | None = None
    ) -> Allocation:
        """Blocks for a request of `tokens`: those found, and new ones behind them.

        The new ones are the first of the free list. Raises PoolError, and changes
        nothing, if there are too few.
        """
        raise NotImplementedError("hashed-blocks: allocate")

    def store(
        self, blocks: Sequence[int], tokens: Sequence[int], extra_key: str | None = None
    ) -> list[int]:
        """The KV of `tokens` is in `blocks` now: full ones can be found from here on.

        Where another block holds the same content, the request goes over to that one
        and releases its own. Where other content has the same hash, this block and
        those behind it are not stored. Returns the blocks of the request.
        """
        raise NotImplementedError("hashed-blocks: store")

    def release(self, blocks: Sequence[int]) -> None:
        """A request lets go of its blocks, the last one first.

        One that no request holds any more goes to the end of the free list, and what is
        stored in it can still be found. Raises PoolError, and changes nothing, if no
        request holds one of them.
        """
        raise NotImplementedError("hashed-blocks: release")
