"""What a radix tree is made of: its nodes, and the receipts it gives out."""

from __future__ import annotations

from array import array

from minisgl.kvcache.base import StaleHandleError
from minisgl.kvcache.radix_key import TOKEN_BYTES, unpack


class RadixTreeNode:
    """A run of tokens with no branch in it, and the slots of their KV."""

    __slots__ = (
        "child_key",
        "children",
        "is_evicted",
        "is_late",
        "packed",
        "parent",
        "ref_count",
        "timestamp",
        "value",
    )

    def __init__(self, packed: bytes, value: array[int], timestamp: int) -> None:
        self.packed = packed  # the tokens, TOKEN_BYTES each
        self.value = value  # their slots
        self.timestamp = timestamp  # tick of the last operation that came through
        self.ref_count = 0  # locked receipts that need this node
        self.children: dict[object, RadixTreeNode] = {}
        self.parent: RadixTreeNode | None = None
        self.child_key: object = None  # its key in parent.children
        self.is_evicted = False
        self.is_late = False  # LeafQueue keeps it in its heap

    @property
    def key(self) -> array[int]:
        """The tokens."""
        return unpack(self.packed)

    _key = key  # the name that drawings of the textbook tree use

    @property
    def length(self) -> int:
        return len(self.value)

    def is_root(self) -> bool:
        return self.parent is None and not self.is_evicted

    def is_evictable_leaf(self) -> bool:
        return not self.children and not self.ref_count and self.parent is not None

    def set_parent(self, parent: RadixTreeNode, child_key: object) -> None:
        self.parent = parent
        self.child_key = child_key
        parent.children[child_key] = self

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
        self.set_parent(upper, self.packed[: page_size * TOKEN_BYTES])
        return upper

    def __repr__(self) -> str:
        tokens = self.key.tolist()
        more = ", …" if len(tokens) > 8 else ""
        return f"node [{', '.join(map(str, tokens[:8]))}{more}]"


class RadixTreeHandle:
    """A receipt for the prefix of `cached_len` tokens that ends with `node`."""

    __slots__ = ("cached_len", "node")

    def __init__(self, cached_len: int, node: RadixTreeNode) -> None:
        self.cached_len = cached_len
        self.node = node

    def matched_slots(self) -> array[int]:
        """The slots of the prefix. Raises StaleHandleError if it was evicted."""
        self.require_fresh()
        values, node = [], self.node
        while node.parent is not None:
            values.append(node.value)
            node = node.parent
        return unpack(b"".join(reversed(values)))

    def require_fresh(self) -> None:
        if self.node.is_evicted:
            raise StaleHandleError(
                f"the prefix of {self.cached_len} tokens behind this handle was "
                "evicted; match again, and lock the result before evicting"
            )
