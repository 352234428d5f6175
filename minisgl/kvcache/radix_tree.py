"""The radix tree of a prefix cache: match, split, insert, lock, evict, check.

A node holds a run of tokens and the slot of each token's KV. The keys from the root to
a node make a prefix, the values its slots. No two children of a node begin with the
same page, so the first page of what is left of a key names the only child to look at.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from minisgl.kvcache.base import (
    EvictionError,
    InsertResult,
    LockError,
    SizeInfo,
)
from minisgl.kvcache.leaf_queue import LeafQueue
from minisgl.kvcache.radix_key import (
    TOKEN_BYTES,
    InvalidKeyError,
    RadixKey,
    common_prefix_bytes,
    unpack,
)
from minisgl.kvcache.radix_node import RadixTreeHandle, RadixTreeNode
from minisgl.kvcache.tree_check import check_tree


class RadixTree:
    """A radix tree over pages of `page_size` tokens.

    The clock is logical: every match and every insert is one tick and stamps the nodes
    on its way, so a parent is never older than its child.
    """

    def __init__(self, page_size: int = 1) -> None:
        if page_size < 1:
            raise InvalidKeyError(f"page_size is {page_size}; it must be 1 or more")
        self.page_size = page_size
        self.root_node = RadixTreeNode(b"", array("i"), 0)
        self.evictable_size = 0  # tokens of all unlocked nodes, leaf or not
        self.protected_size = 0
        self._page_bytes = page_size * TOKEN_BYTES
        self.clock = 0
        self.receipts: set[RadixTreeHandle] = set()  # locked, not yet released
        self.leaves = LeafQueue()  # those that evict may take

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(self.evictable_size, self.protected_size)

    def match_prefix(self, key: RadixKey) -> RadixTreeHandle:
        """A receipt for the longest stored prefix of `key`, in whole pages."""
        node, matched_len = self._tree_walk(key)
        return RadixTreeHandle(matched_len, node)

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

    def lock(self, handle: RadixTreeHandle) -> None:
        """Protect all nodes of the handle's prefix until `unlock`."""
        handle.require_fresh()
        if handle in self.receipts:
            raise LockError("this handle is locked; match again for another receipt")
        self.receipts.add(handle)
        length, node = 0, handle.node
        while node.parent is not None:
            if node.ref_count == 0:
                length += len(node.value)
            node.ref_count += 1
            node = node.parent
        assert node is self.root_node, "this handle is of another tree"
        self.evictable_size -= length
        self.protected_size += length

    def unlock(self, handle: RadixTreeHandle) -> None:
        """Give the receipt back; nodes that no other receipt needs become evictable."""
        if handle not in self.receipts:
            raise LockError("this handle is not locked here, or was released before")
        self.receipts.remove(handle)
        length, node = 0, handle.node
        while node.parent is not None:
            node.ref_count -= 1
            if node.ref_count == 0:
                length += len(node.value)
            node = node.parent
        self.protected_size -= length
        self.evictable_size += length
        if handle.node.is_evictable_leaf():
            self.leaves.add(handle.node)

    def evict(self, size: int) -> array[int]:
        """Remove the leaves unused for longest until `size` tokens are gone.

        Returns their slots. Raises EvictionError if `size` tokens are not evictable.
        """
        if not 0 <= size <= self.evictable_size:
            raise EvictionError(
                f"cannot evict {size} tokens: {self.evictable_size} are evictable"
            )
        freed = array("i")
        while len(freed) < size:
            node = self.leaves.pop_oldest()
            freed += node.value
            self._remove_leaf(node)
        self.evictable_size -= len(freed)
        return freed

    def reset(self) -> None:
        """Forget everything. Raises LockError if a handle is still locked."""
        if self.receipts:
            raise LockError(f"{len(self.receipts)} handles are locked; release them")
        self.evict(self.evictable_size)

    def nodes(self) -> Iterator[RadixTreeNode]:
        """All nodes, parents before children; the root is first."""
        stack = [self.root_node]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

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
            if not packed.startswith(child.packed, pos):
                shared = common_prefix_bytes(packed, pos, child.packed, page_bytes)
                node = child.split_at(shared // TOKEN_BYTES, self.page_size)
                node.timestamp = tick  # now; the other part keeps its old stamp
                pos += shared
                break
            node = child
            node.timestamp = tick
            pos += len(node.packed)
            child_key = packed[pos : pos + page_bytes]
        self.leaves.refresh(node)
        return node, pos // TOKEN_BYTES

    def _child_key(self, key: RadixKey, pos: int) -> object:
        """What a child that continues `key` at token `pos` is found under.

        Below the root that is the bytes of its first page; directly below, the
        namespace comes with it.
        """
        start = pos * TOKEN_BYTES
        first_page = key.packed[start : start + self._page_bytes]
        if pos == 0 and key.namespace is not None:
            return key.namespace, first_page
        return first_page

    def _add_leaf(
        self, parent: RadixTreeNode, key: RadixKey, pos: int, slots: array[int]
    ) -> RadixTreeNode:
        """Hang `len(slots)` tokens of `key`, from token `pos` on, below `parent`."""
        packed = key.packed[pos * TOKEN_BYTES : (pos + len(slots)) * TOKEN_BYTES]
        leaf = RadixTreeNode(packed, slots, self.clock)
        leaf.set_parent(parent, self._child_key(key, pos))
        self.leaves.discard(parent)
        self.leaves.add(leaf)
        self.evictable_size += leaf.length
        return leaf

    def _remove_leaf(self, node: RadixTreeNode) -> None:
        parent = node.parent
        del parent.children[node.child_key]
        node.parent, node.is_evicted = None, True
        if parent.is_evictable_leaf():
            self.leaves.add(parent)

    def held_slots(self) -> array[int]:
        """Every slot the tree owns, in no particular order."""
        return unpack(b"".join(node.value for node in self.nodes()))

    def check_integrity(self) -> None:
        """Recount everything from scratch. Raises IntegrityError naming the offence."""
        check_tree(self)
