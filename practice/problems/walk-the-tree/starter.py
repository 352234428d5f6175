"""The walk of a match through the radix tree."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.radix_key import TOKEN_BYTES, RadixKey, common_prefix_bytes
from minisgl.kvcache.radix_node import RadixTreeNode


class RadixTree(radix_tree.RadixTree):
    """The engine's tree; `_tree_walk` is yours."""

    def _tree_walk(self, key: RadixKey) -> tuple[RadixTreeNode, int]:
        """Follow `key` from the root, stamping; split where it leaves a node midway.

        Returns the node where the match ends, and the match's length in tokens.
        """
        raise NotImplementedError("walk-the-tree: _tree_walk")
