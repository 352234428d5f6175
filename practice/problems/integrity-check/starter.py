"""The recount beside the counters: is a radix tree what it says it is?"""

from __future__ import annotations

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import TOKEN_BYTES
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree


def check_tree(tree: RadixTree) -> None:
    """Raise IntegrityError, naming the offence, if anything is not as it must be.

    * shape: each child found under its own first page, and linked back to its parent;
    * pages: whole ones, at least one in a node, and a slot for each token;
    * locks: each node's count against the receipts that are out;
    * sizes: both counters against a recount;
    * slots: each in one place only.
    """
    raise NotImplementedError("integrity-check: check_tree")
