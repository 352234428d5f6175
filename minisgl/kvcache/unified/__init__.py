"""The unified radix cache and its components."""

from __future__ import annotations

from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.mamba_component import MambaComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import (
    DecLockRefParams,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from minisgl.kvcache.unified.swa_component import SWAComponent
from minisgl.kvcache.unified.tree_component import TreeComponent
from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache

__all__ = [
    "ComponentType",
    "DecLockRefParams",
    "EvictParams",
    "EvictResult",
    "FullComponent",
    "IncLockRefResult",
    "InsertParams",
    "InsertResult",
    "MambaComponent",
    "MatchPrefixParams",
    "MatchResult",
    "SWAComponent",
    "TreeComponent",
    "UnifiedRadixCache",
]
