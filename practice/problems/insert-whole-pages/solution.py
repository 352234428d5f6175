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
        if len(indices) != len(key):
            raise InvalidKeyError(f"{len(key)} tokens came with {len(indices)} slots")
        node, matched_len = self._tree_walk(key)
        insert_len = len(key) // self.page_size * self.page_size
        if matched_len < insert_len:
            new_slots = array("i", indices[matched_len:insert_len])
            node = self._add_leaf(node, key, matched_len, new_slots)
        return InsertResult(matched_len, RadixTreeHandle(insert_len, node))
