"""The recount beside the counters: is a radix tree what it says it is?

Nothing here is used to run the tree. It walks without recursion, so the depth of the
tree does not matter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import TOKEN_BYTES

if TYPE_CHECKING:
    from minisgl.kvcache.radix_node import RadixTreeNode
    from minisgl.kvcache.radix_tree import RadixTree


def check_tree(tree: RadixTree) -> None:
    """Raise IntegrityError, naming the offence, if anything is not as it must be.

    * shape: whole pages, each node found under its own first page, parents linked back;
    * stamps: none in the future, no parent older than its child;
    * locks: each node's count against the receipts that are out;
    * sizes: both counters against a recount;
    * slots: each under one node only;
    * the queue of leaves: every leaf that may be evicted, once, in order.
    """
    receipts = _count_receipts(tree)
    evictable = protected = 0
    slots: set[int] = set()
    leaves: set[RadixTreeNode] = set()
    for node in tree.nodes():
        _check_node(tree, node)
        _check_children(tree, node)
        count = receipts.pop(node, 0)
        if node.ref_count != count:
            _fail(f"{node} is locked {node.ref_count}×, by {count} receipts")
        if node.ref_count:
            protected += node.length
        else:
            evictable += node.length
        slots.update(node.value)
        if len(slots) != evictable + protected:
            _fail_for_shared_slot(tree, node)
        if node.is_evictable_leaf():
            leaves.add(node)
    for node in receipts:
        _fail(f"a receipt is out for {node}, which is not in the tree")
    counted, held = (evictable, protected), tuple(tree.size_info)
    if counted != held:
        _fail(f"(evictable, protected) is {held}; the nodes add up to {counted}")
    tree.leaves.check(leaves)


def _count_receipts(tree: RadixTree) -> Counter[RadixTreeNode]:
    """How many locked receipts need each node."""
    counts: Counter[RadixTreeNode] = Counter()
    for handle in tree.receipts:
        length, node, path = 0, handle.node, set()
        while node.parent is not None and node not in path:  # parents in a ring end too
            path.add(node)
            length += node.length
            node = node.parent
        counts.update(path)
        if node is not tree.root_node or length != handle.cached_len:
            _fail(
                f"a receipt for {handle.cached_len} tokens is out, and the path of "
                f"{handle.node} to the root has {length}"
            )
    return counts


def _check_node(tree: RadixTree, node: RadixTreeNode) -> None:
    if node.is_evicted:
        _fail(f"{node} was evicted and is still in the tree")
    if len(node.packed) != node.length * TOKEN_BYTES:
        _fail(f"{node} has {len(node.packed)} bytes of tokens, {node.length} slots")
    if node.length % tree.page_size or (node.length == 0) != node.is_root():
        _fail(f"{node} holds {node.length} tokens; a page has {tree.page_size}")


def _check_children(tree: RadixTree, node: RadixTreeNode) -> None:
    page_bytes = tree.page_size * TOKEN_BYTES
    for child_key, child in node.children.items():
        first_page = child.packed[:page_bytes]
        if child.parent is not node:
            _fail(f"{child} lies under {node}, but its parent is {child.parent}")
        if child.child_key != child_key:
            _fail(f"{child} lies under {child_key!r}, not under {child.child_key!r}")
        if node.is_root() and isinstance(child_key, tuple):
            child_key = child_key[1]
        if child_key != first_page:
            _fail(f"{child} lies under {child_key!r}, which is not its first page")
        newest = tree.clock if node.is_root() else node.timestamp
        if not 0 < child.timestamp <= newest:
            _fail(f"{child} is stamped {child.timestamp}, what is above it {newest}")
        if child.ref_count > node.ref_count and not node.is_root():
            _fail(f"{child} is locked more often than its parent {node}")


def _fail_for_shared_slot(tree: RadixTree, last: RadixTreeNode) -> NoReturn:
    owners: dict[int, RadixTreeNode] = {}
    for node in tree.nodes():
        for slot in node.value:
            if slot in owners:
                _fail(f"slot {slot} is owned twice: by {owners[slot]} and by {node}")
            owners[slot] = node
    raise AssertionError(f"no slot up to {last} is owned twice after all")


def _fail(offence: str) -> NoReturn:
    raise IntegrityError(offence)
