"""A prefix shorter than the window is refused although it is complete."""

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
        blocker: UnifiedTreeNode | None = None  # the tombstone that stopped us last

        def may_end(node: UnifiedTreeNode) -> bool:
            nonlocal blocker
            if blocker is None:
                needed, num_left = node, self.sliding_window_size
                while num_left > 0 and needed is not root:
                    if needed.component_data[kind].value is None:
                        blocker = needed
                        break
                    num_left -= len(needed)
                    needed = needed.parent
                else:
                    return num_left <= 0
            if node is blocker:  # above it, it is in nobody's way
                blocker = None
            return False

        return may_end
