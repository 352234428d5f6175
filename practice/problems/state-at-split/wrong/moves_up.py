"""As with the mark of a window lock: state and lock move to the upper half."""

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
        is_page_end = len(params.key) % self.cache.page_size == 0
        if (
            is_page_end
            and None not in others
            and not self.node_has_component_data(node)
        ):
            self._set_value(node, params.mamba_value[:])
        else:
            result.mamba_exist = True

    def redistribute_on_node_split(
        self, upper: UnifiedTreeNode, lower: UnifiedTreeNode
    ) -> None:
        above = upper.component_data[self.component_type]
        below = lower.component_data[self.component_type]
        above.value, below.value = below.value, None
        above.lock_ref, below.lock_ref = below.lock_ref, 0
        if lower in self.lru_list:
            self.lru_list.insert(upper, newer=lower)
            self.lru_list.remove(lower)
