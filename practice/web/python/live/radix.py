"""The data of a live drawing of the radix tree: operations in, one picture each out."""

from __future__ import annotations

from typing import Any

from minisgl.errors import MiniSGLError
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_node import RadixTreeHandle, RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run operations on an empty tree: what each one did, and the tree after it.

    Args:
        asked: `{"page_size": 1, "operations": [["insert", [1, 2, 3]], …]}`. Operations
            are insert and match and lock (tokens, and a namespace if wanted), unlock
            (the number that a lock gave) and evict (a number of tokens).

    Returns:
        `{"steps": [{"says", "error", "tree", "evictable", "protected"}, …]}`; `says` is
        a sentence, `error` what the tree refused, or null. A node of `tree` has id (the
        same in all steps), tokens, slots, locks, stamp and children.
    """
    world = _World(asked.get("page_size", 1))
    return {"steps": [world.step(*operation) for operation in asked["operations"]]}


class _World:
    def __init__(self, page_size: int) -> None:
        self.tree = RadixTree(page_size)
        self.handles: list[RadixTreeHandle] = []  # of locks, in order
        self.num_slots = 0  # handed out so far
        self.seen: list[RadixTreeNode] = []  # a node's place here is its id

    def step(self, name: str, *arguments: Any) -> dict[str, Any]:
        says, error = "", None
        try:
            says = _OPERATIONS[name](self, *arguments)
        except MiniSGLError as refused:
            error = f"{type(refused).__name__}: {refused}"
        sizes = self.tree.size_info
        return {
            "says": says,
            "error": error,
            "tree": self.picture(),
            "evictable": sizes.evictable_size,
            "protected": sizes.protected_size,
        }

    def insert(self, tokens: list[int], space: str | None = None) -> str:
        first, self.num_slots = self.num_slots, self.num_slots + len(tokens)
        slots = range(first, self.num_slots)
        found = self.tree.insert_prefix(RadixKey(tokens, space), slots).cached_len
        return f"{found} of {len(tokens)} tokens were there already"

    def match(self, tokens: list[int], space: str | None = None) -> str:
        handle = self.tree.match_prefix(RadixKey(tokens, space))
        slots = handle.matched_slots().tolist()
        return f"{handle.cached_len} of {len(tokens)} tokens found, in slots {slots}"

    def lock(self, tokens: list[int], space: str | None = None) -> str:
        handle = self.tree.match_prefix(RadixKey(tokens, space))
        self.tree.lock(handle)
        self.handles.append(handle)
        return f"receipt {len(self.handles)} protects {handle.cached_len} tokens"

    def unlock(self, receipt: int) -> str:
        if not 1 <= receipt <= len(self.handles):
            return f"there is no receipt {receipt}"
        self.tree.unlock(self.handles[receipt - 1])
        return f"receipt {receipt} is given back"

    def evict(self, size: int) -> str:
        slots = self.tree.evict(size).tolist()
        return f"{len(slots)} tokens evicted; slots {slots} are free"

    def picture(self) -> dict[str, Any]:
        """The tree as nested plain data; built without recursion."""
        pictures = {}
        for node in self.tree.nodes():
            picture = {
                "id": self.number(node),
                "tokens": node.key.tolist(),
                "slots": node.value.tolist(),
                "locks": node.ref_count,
                "stamp": node.timestamp,
                "children": [],
            }
            pictures[node] = picture
            if node.parent is not None:
                pictures[node.parent]["children"].append(picture)
        for picture in pictures.values():
            picture["children"].sort(key=lambda child: child["tokens"])
        return pictures[self.tree.root_node]

    def number(self, node: RadixTreeNode) -> int:
        if node not in self.seen:
            self.seen.append(node)
        return self.seen.index(node)


_OPERATIONS = {
    "insert": _World.insert,
    "match": _World.match,
    "lock": _World.lock,
    "unlock": _World.unlock,
    "evict": _World.evict,
}
