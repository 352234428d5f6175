"""Insert into the radix tree: whole pages, and only those it lacks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from minisgl.kvcache import radix_tree
from minisgl.kvcache.base import InsertResult
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey
from minisgl.kvcache.radix_node import RadixTreeHandle


class RadixTree(radix_tree.RadixTree):
    """The engine's tree; `insert_prefix` is yours."""

    def insert_prefix(self, key: RadixKey, indices: Sequence[int]) -> InsertResult:
        """Store the whole pages of `key`; `indices` has the slot of every token.

        Raises InvalidKeyError if the lengths differ.
        """
        raise NotImplementedError("insert-whole-pages: insert_prefix")
