"""Two tenants with the same prompt: what keeps their KV apart."""

from __future__ import annotations

from minisgl.kvcache import radix_tree
from minisgl.kvcache.radix_key import (
    TOKEN_BYTES,
    InvalidKeyError,
    Namespace,
    RadixKey,
)


def namespace(**fields: str | None) -> Namespace | None:
    """What separates requests that must not share KV: a tenant's salt, an adapter, …

    A field that is None counts as not given; an empty string is a value like any other.
    Without fields the result is None, the namespace of plain requests.

    Raises InvalidKeyError for a value that is not a string.
    """
    raise NotImplementedError("namespaces: namespace")


class RadixTree(radix_tree.RadixTree):
    """The engine's radix tree, but for where it looks a child up."""

    def _child_key(self, key: RadixKey, pos: int) -> object:
        """What a child that continues `key` at token `pos` is found under.

        Below the root that is the bytes of its first page; directly below, the
        namespace comes with it.
        """
        raise NotImplementedError("namespaces: RadixTree._child_key")
