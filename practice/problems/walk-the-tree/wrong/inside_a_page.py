"""Compares tokens instead of pages: a node may be split inside a page."""

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
        packed, page_bytes = key.packed, self._page_bytes
        end = len(packed) - len(packed) % page_bytes
        self.clock = tick = self.clock + 1
        node, pos = self.root_node, 0
        child_key = self._child_key(key, 0)
        while pos < end:
            child = node.children.get(child_key)
            if child is None:
                break
            shared = common_prefix_bytes(packed, pos, child.packed, TOKEN_BYTES)
            pos += shared
            if shared < len(child.packed):
                node = child.split_at(shared // TOKEN_BYTES, self.page_size)
                node.timestamp = tick  # now; the other part keeps its old stamp
                break
            node = child
            node.timestamp = tick
            child_key = packed[pos : pos + page_bytes]
        self.leaves.refresh(node)
        return node, pos // TOKEN_BYTES
