from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams, InsertResult


class MambaComponent(mamba_component.MambaComponent):
    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        """A predicate for one match: may it end with this node?"""
        raise NotImplementedError("state-at-split: create_match_validator")

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        """Take the caller's state, unless there is one or it could not be used here."""
        raise NotImplementedError("state-at-split: commit_insert_component_data")

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """`upper` was cut off the front of `lower`, which still has all the data."""
        raise NotImplementedError("state-at-split: redistribute_on_node_split")
