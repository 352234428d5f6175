"""A doubly linked list through the nodes of the tree, in order of use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minisgl.kvcache.unified.node import ComponentData, ComponentType, UnifiedTreeNode


class UnifiedLRUList:
    """The nodes that hold one component's data, from least to most recently used.

    The links lie in the nodes' ComponentData, `lru_prev` towards older ones and
    `lru_next` towards newer ones, so every change is O(1) and needs no search. A
    sentinel closes the ring: it comes before the oldest and after the newest.
    """

    def __init__(self, component_type: ComponentType) -> None:
        self._type = component_type
        self._ring = ComponentData()
        self._ring.lru_prev = self._ring.lru_next = self._ring

    def __contains__(self, node: UnifiedTreeNode) -> bool:
        return node.component_data[self._type].lru_next is not None

    def __iter__(self) -> Iterator[UnifiedTreeNode]:
        """From least to most recently used."""
        node = self.oldest()
        while node is not None:
            yield node
            node = self.newer(node)

    def oldest(self) -> UnifiedTreeNode | None:
        """The least recently used node, or None if the list is empty."""
        return self._ring.lru_next.node

    def newer(self, node: UnifiedTreeNode) -> UnifiedTreeNode | None:
        """The node used next after `node`, or None for the most recently used."""
        return node.component_data[self._type].lru_next.node

    def insert(self, node: UnifiedTreeNode, newer: UnifiedTreeNode | None) -> None:
        """Add a node as the one used just before `newer`; None makes it the newest."""
        data = node.component_data[self._type]
        assert data.lru_next is None, f"{node} is in the list already"
        data.node = node
        _link(data, self._ring if newer is None else newer.component_data[self._type])

    def remove(self, node: UnifiedTreeNode) -> None:
        """Take a node out."""
        data = node.component_data[self._type]
        assert data.lru_next is not None, f"{node} is not in the list"
        data.lru_prev.lru_next, data.lru_next.lru_prev = data.lru_next, data.lru_prev
        data.node = data.lru_prev = data.lru_next = None  # leaves no reference cycle

    def promote(self, nodes: Iterable[UnifiedTreeNode]) -> None:
        """Make these nodes the newest, the first most of all; skip any not listed."""
        kind, newer = self._type, self._ring
        for node in nodes:
            data = node.component_data[kind]
            after = data.lru_next
            if after is None:
                continue
            if after is not newer:
                data.lru_prev.lru_next, after.lru_prev = after, data.lru_prev
                _link(data, newer)
            newer = data


def _link(data: ComponentData, after: ComponentData) -> None:
    before = after.lru_prev
    data.lru_prev, data.lru_next = before, after
    before.lru_next = after.lru_prev = data
