from __future__ import annotations

from minisgl.kvcache.unified import unified_radix_cache
from minisgl.kvcache.unified.node import UnifiedTreeNode


class UnifiedRadixCache(unified_radix_cache.UnifiedRadixCache):
    def _delete_dead_branch(self, node: UnifiedTreeNode) -> None:
        """Delete a node without children, base data and locks, with all other data.

        Its parents go likewise; the first that stays may be an evictable leaf now.
        """
        raise NotImplementedError("childless-ancestors: _delete_dead_branch")
