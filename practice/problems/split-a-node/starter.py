"""Cut a node of the radix tree in two."""

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
        raise NotImplementedError("split-a-node: split_at")
