"""Every node looks through its whole window anew."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode


class SWAComponent(swa_component.SWAComponent):
    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        """A predicate for one match: may it end with this node?

        It is asked about the nodes of the path, from the deepest up.
        """
        kind, root = self.component_type, self.cache.root_node

        def may_end(node: UnifiedTreeNode) -> bool:
            num_left = self.sliding_window_size
            while num_left > 0 and node is not root:
                if node.component_data[kind].value is None:
                    return False
                num_left -= len(node)
                node = node.parent
            return True

        return may_end
