"""Puts the deeper half under its first token instead of its first page."""

from __future__ import annotations

from minisgl.kvcache import radix_node
from minisgl.kvcache.radix_key import TOKEN_BYTES


class RadixTreeNode(radix_node.RadixTreeNode):
    """The engine's node; `split_at` is yours."""

    def split_at(self, pos: int, page_size: int) -> RadixTreeNode:
        """Cut off the first `pos` tokens into a new parent of this node; return it.

        The deeper part stays this object: handles that point here still mean the whole
        prefix, and release every node they locked. Both parts own what they hold.
        """
        assert 0 < pos < self.length, f"cut at {pos} of {self.length}"
        cut = pos * TOKEN_BYTES
        upper = RadixTreeNode(self.packed[:cut], self.value[:pos], self.timestamp)
        upper.ref_count = self.ref_count
        upper.set_parent(self.parent, self.child_key)
        self.packed, self.value = self.packed[cut:], self.value[pos:]
        self.set_parent(upper, self.packed[:TOKEN_BYTES])
        return upper
