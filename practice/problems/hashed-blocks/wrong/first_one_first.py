"""Releases the blocks in the order of the tokens, so the beginning goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from minisgl.errors import PoolError


class Allocation(NamedTuple):
    blocks: list[int]  # in the order of its tokens
    cached_len: int  # tokens whose KV is there already, in whole blocks


class HashedBlockCache:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        hash_function: Callable[[tuple], int] = hash,
    ) -> None:
        self.block_size = block_size
        self._hash_function = hash_function
        self._free = OrderedDict.fromkeys(range(num_blocks))  # the first goes next
        self._ref_counts = [0] * num_blocks
        self._contents: dict[
            int, tuple[int, tuple]
        ] = {}  # block -> hash, what it is of
        self._holders: dict[int, int] = {}  # hash -> block

    @property
    def num_free(self) -> int:
        return len(self._free)

    def match(self, tokens: Sequence[int], extra_key: str | None = None) -> list[int]:
        blocks = []
        for content in self._chain(tokens, extra_key):
            block = self._holders.get(content[0])
            if block is None or self._contents[block] != content:
                break
            blocks.append(block)
        return blocks

    def allocate(
        self, tokens: Sequence[int], extra_key: str | None = None
    ) -> Allocation:
        found = self.match(tokens, extra_key)
        num_new = -(-len(tokens) // self.block_size) - len(found)
        num_left = len(self._free) - sum(block in self._free for block in found)
        if num_new > num_left:
            raise PoolError(f"{num_new} blocks are needed, {num_left} are free")
        for block in found:
            self._hold(block)
        blocks = found + [self._take_first() for _ in range(num_new)]
        return Allocation(blocks, len(found) * self.block_size)

    def store(
        self, blocks: Sequence[int], tokens: Sequence[int], extra_key: str | None = None
    ) -> list[int]:
        blocks = list(blocks)
        for i, content in enumerate(self._chain(tokens, extra_key)):
            block = self._holders.setdefault(content[0], blocks[i])
            if block == blocks[i]:
                self._contents[block] = content
            elif self._contents[block] == content:
                self._hold(block)
                self.release([blocks[i]])
                blocks[i] = block
            else:
                break
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if not self._ref_counts[block]:
                raise PoolError(f"block {block} is not in use")
        for block in blocks:
            self._ref_counts[block] -= 1
            if not self._ref_counts[block]:
                self._free[block] = None

    def _chain(
        self, tokens: Sequence[int], extra_key: str | None
    ) -> Iterator[tuple[int, tuple]]:
        hashed = None
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            content = hashed, tuple(tokens[end - self.block_size : end]), extra_key
            hashed = self._hash_function(content)
            yield hashed, content

    def _hold(self, block: int) -> None:
        self._ref_counts[block] += 1
        self._free.pop(block, None)

    def _take_first(self) -> int:
        block = next(iter(self._free))
        self._hold(block)
        if block in self._contents:
            hashed, _ = self._contents.pop(block)
            del self._holders[hashed]
        return block
