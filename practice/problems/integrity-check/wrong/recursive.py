"""Calls itself for each child: a deep branch is too much for it."""

from __future__ import annotations

from collections import Counter

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import TOKEN_BYTES
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree


def check_tree(tree: RadixTree) -> None:
    nodes = _check_shape(tree)
    _check_locks(tree, nodes)
    _check_sizes(tree, nodes)
    _check_slots(nodes)


def _check_shape(tree: RadixTree) -> list[RadixTreeNode]:
    nodes: list[RadixTreeNode] = []
    _check_below(tree, tree.root_node, nodes)
    return nodes


def _check_below(
    tree: RadixTree, node: RadixTreeNode, nodes: list[RadixTreeNode]
) -> None:
    page_bytes = tree.page_size * TOKEN_BYTES
    for key, child in node.children.items():
        if child.parent is not node:
            raise IntegrityError(f"{child} lies below {node}, not its parent")
        page = key[1] if isinstance(key, tuple) and node.is_root() else key
        if key != child.child_key or page != child.packed[:page_bytes]:
            raise IntegrityError(f"{child} lies under {key!r}, not its first page")
        if len(child.packed) != child.length * TOKEN_BYTES:
            raise IntegrityError(f"{child} has {child.length} slots")
        if not child.length or child.length % tree.page_size:
            raise IntegrityError(f"{child} does not hold whole pages")
        nodes.append(child)
        _check_below(tree, child, nodes)


def _check_locks(tree: RadixTree, nodes: list[RadixTreeNode]) -> None:
    in_tree = {tree.root_node, *nodes}
    counts: Counter[RadixTreeNode] = Counter()
    for handle in tree.receipts:
        node = handle.node
        if node not in in_tree:
            raise IntegrityError(f"a receipt is out for {node}, which is not there")
        while node is not tree.root_node:
            counts[node] += 1
            node = node.parent
    for node in nodes:
        if node.ref_count != counts[node]:
            raise IntegrityError(
                f"{node} is locked {node.ref_count}×, by {counts[node]} receipts"
            )


def _check_sizes(tree: RadixTree, nodes: list[RadixTreeNode]) -> None:
    evictable = sum(node.length for node in nodes if not node.ref_count)
    protected = sum(node.length for node in nodes) - evictable
    held = tree.evictable_size, tree.protected_size
    if held != (evictable, protected):
        raise IntegrityError(
            f"(evictable, protected) is {held}; the nodes add up to "
            f"{(evictable, protected)}"
        )


def _check_slots(nodes: list[RadixTreeNode]) -> None:
    owners: dict[int, RadixTreeNode] = {}
    for node in nodes:
        for slot in node.value:
            if slot in owners:
                raise IntegrityError(
                    f"slot {slot} is in two places: {owners[slot]} and {node}"
                )
            owners[slot] = node
