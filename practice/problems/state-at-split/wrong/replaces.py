"""The newest state for a key replaces the one that the tree has."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.node import UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams, InsertResult


class MambaComponent(mamba_component.MambaComponent):
    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        kind = self.component_type
        return lambda node: node.component_data[kind].value is not None

    def commit_insert_component_data(
        self, node: UnifiedTreeNode, params: InsertParams, result: InsertResult
    ) -> None:
        if params.mamba_value is None:
            return
        others = [node.component_data[kind].value for kind in self._other_types]
        if None in others or len(params.key) % self.cache.page_size:
            result.mamba_exist = True
        elif self.node_has_component_data(node):
            node.component_data[self.component_type].value = params.mamba_value[:]
        else:
            self._set_value(node, params.mamba_value[:])

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        """State and lock stay with `lower`."""
