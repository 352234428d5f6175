"""The modules that need nothing but the standard library.

They hold every decision about the KV cache, import without torch, and therefore run
in a browser too. The browser package is built from this list.
"""

from __future__ import annotations

MODULES = (
    "minisgl",
    "minisgl.core",
    "minisgl.errors",
    "minisgl.kvcache",
    "minisgl.kvcache.base",
    "minisgl.kvcache.leaf_queue",
    "minisgl.kvcache.page_allocator",
    "minisgl.kvcache.radix_key",
    "minisgl.kvcache.radix_node",
    "minisgl.kvcache.radix_tree",
    "minisgl.kvcache.swa_mapping",
    "minisgl.kvcache.tree_check",
    "minisgl.kvcache.unified",
    "minisgl.kvcache.unified.full_component",
    "minisgl.kvcache.unified.integrity",
    "minisgl.kvcache.unified.leaves",
    "minisgl.kvcache.unified.lru_list",
    "minisgl.kvcache.unified.mamba_component",
    "minisgl.kvcache.unified.node",
    "minisgl.kvcache.unified.params",
    "minisgl.kvcache.unified.swa_component",
    "minisgl.kvcache.unified.tree_component",
    "minisgl.kvcache.unified.unified_radix_cache",
    "minisgl.torch_free",
)
