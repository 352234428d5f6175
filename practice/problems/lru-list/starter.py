from __future__ import annotations

from collections.abc import Iterable, Iterator

from minisgl.kvcache.unified import lru_list
from minisgl.kvcache.unified.node import UnifiedTreeNode


class UnifiedLRUList(lru_list.UnifiedLRUList):
    def __iter__(self) -> Iterator[UnifiedTreeNode]:
        """From least to most recently used."""
        raise NotImplementedError("lru-list: __iter__")

    def insert(self, node: UnifiedTreeNode, newer: UnifiedTreeNode | None) -> None:
        """Add a node as the one used just before `newer`; None makes it the newest."""
        raise NotImplementedError("lru-list: insert")

    def remove(self, node: UnifiedTreeNode) -> None:
        """Take a node out."""
        raise NotImplementedError("lru-list: remove")

    def promote(self, nodes: Iterable[UnifiedTreeNode]) -> None:
        """Make these nodes the newest, the first most of all; skip any not listed."""
        raise NotImplementedError("lru-list: promote")
