from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.unified import swa_component
from minisgl.kvcache.unified.node import UnifiedTreeNode


class SWAComponent(swa_component.SWAComponent):
    def create_match_validator(self) -> Callable[[UnifiedTreeNode], bool]:
        """A predicate for one match: may it end with this node?

        It is asked about the nodes of the path, from the deepest up.
        """
        raise NotImplementedError("window-validator: create_match_validator")
