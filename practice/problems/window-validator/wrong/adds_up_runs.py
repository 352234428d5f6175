"""Live tokens on both sides of a tombstone are added up to a window."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode


class SWAComponent(swa_component.SWAComponent):
    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        """A predicate for one match: may it end with this node?

        It is asked about the nodes of the path, from the deepest up.
        """
        kind = self.component_type

        def may_end(node: UnifiedTreeNode) -> bool:
            if node.component_data[kind].value is None:
                return False
            num_live = num_dead = 0
            while node is not self.cache.root_node:
                if node.component_data[kind].value is None:
                    num_dead += len(node)
                else:
                    num_live += len(node)
                node = node.parent
            return num_live >= self.sliding_window_size or num_dead == 0

        return may_end
