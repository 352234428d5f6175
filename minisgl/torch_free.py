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
    "minisgl.kvcache.tree_check",
    "minisgl.torch_free",
)
