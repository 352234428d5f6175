"""Makes the new object the deeper half: handles then mean the upper one only."""

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
        cut = pos * TOKEN_BYTES
        lower = RadixTreeNode(self.packed[cut:], self.value[pos:], self.timestamp)
        lower.ref_count = self.ref_count
        for child_key, child in self.children.items():
            child.set_parent(lower, child_key)
        self.packed, self.value = self.packed[:cut], self.value[:pos]
        self.children = {}
        lower.set_parent(self, lower.packed[: page_size * TOKEN_BYTES])
        return self
