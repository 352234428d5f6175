"""A live drawing of chapter 8's radix tree."""

from __future__ import annotations

from typing import Any

from live.play import (
    BadInput,
    Node,
    Operation,
    Picture,
    Size,
    World,
    in_python,
    listed,
    play,
    space_of,
    title_of,
    typed,
)

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_node import RadixTreeHandle, RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Play operations on an empty tree; see `play`."""
    return play(RadixWorld, asked)


class RadixWorld(World):
    """A tree, and the slots and receipts that its users would keep."""

    title = "the radix tree"
    options = {"page_size": "1"}

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.page_size = self.whole("page_size", 1, 16)
        self.tree = RadixTree(self.page_size)
        self.handles: list[RadixTreeHandle] = []  # of locks, in order
        self.num_slots = 0  # handed out so far
        self.seen: dict[RadixTreeNode, int] = {}  # node -> its id

    def insert(self, tokens: list[int], space: str | None = None) -> str:
        first, self.num_slots = self.num_slots, self.num_slots + len(tokens)
        slots = list(range(first, self.num_slots))
        self.code.append(f"tree.insert_prefix({_key(tokens, space)}, {slots})")
        found = self.tree.insert_prefix(RadixKey(tokens, space), slots).cached_len
        return f"{found} of {len(tokens)} tokens were there already."

    def match(self, tokens: list[int], space: str | None = None) -> str:
        self.code.append(f"tree.match_prefix({_key(tokens, space)})")
        handle = self.tree.match_prefix(RadixKey(tokens, space))
        slots = handle.matched_slots().tolist()
        return f"{handle.cached_len} of {len(tokens)} tokens found, in slots {slots}."

    def lock(self, tokens: list[int], space: str | None = None) -> str:
        number = len(self.handles) + 1
        handle = self.tree.match_prefix(RadixKey(tokens, space))
        self.code.append(f"receipt_{number} = tree.match_prefix({_key(tokens, space)})")
        self.code.append(f"tree.lock(receipt_{number})")
        self.tree.lock(handle)
        self.handles.append(handle)
        return f"Receipt {number} protects {handle.cached_len} tokens."

    def unlock(self, receipt: int) -> str:
        if not 1 <= receipt <= len(self.handles):
            raise BadInput(
                f"there is no receipt {receipt}: {len(self.handles)} are out"
            )
        self.code.append(f"tree.unlock(receipt_{receipt})")
        self.tree.unlock(self.handles[receipt - 1])
        return f"Receipt {receipt} is given back."

    def evict(self, size: int) -> str:
        self.code.append(f"tree.evict({size})")
        slots = self.tree.evict(size).tolist()
        return f"Slots {slots} are free again."

    operations = (
        Operation("insert TOKENS [@SPACE]", "store a prefix", insert),
        Operation("match TOKENS [@SPACE]", "find the longest stored prefix", match),
        Operation("lock TOKENS [@SPACE]", "match, and protect what was found", lock),
        Operation("unlock RECEIPT", "give a receipt back", unlock),
        Operation("evict COUNT", "forget at least so many tokens", evict),
    )

    def setup(self) -> list[str]:
        return [
            "from minisgl.kvcache.radix_key import RadixKey",
            "from minisgl.kvcache.radix_tree import RadixTree",
            "",
            f"tree = RadixTree(page_size={self.page_size})",
        ]

    def sizes(self) -> list[Size]:
        sizes = self.tree.size_info
        return [
            Size("evictable", "tree.evictable_size", sizes.evictable_size),
            Size("protected", "tree.protected_size", sizes.protected_size),
        ]

    def check(self) -> None:
        self.tree.check_integrity()

    def picture(self) -> Picture:
        drawn: dict[RadixTreeNode, Node] = {}
        paths: dict[RadixTreeNode, tuple[list[int], str | None]] = {}
        for node in self.tree.nodes():
            number = self.seen.setdefault(node, len(self.seen))
            if node.parent is None:
                drawn[node], paths[node] = Node(number, "root"), ([], None)
                continue
            above, space = paths[node.parent]
            if isinstance(node.child_key, tuple):
                space = space_of(node.child_key)
            paths[node] = above + node.key.tolist(), space
            drawn[node] = Node(
                number,
                title_of(node.key, space if not above else None),
                [f"slots {listed(node.value)}", *_lock(node.ref_count)],
                stamp=node.timestamp,
                is_locked=node.ref_count > 0,
                typed=typed(*paths[node]),
            )
            drawn[node.parent].children.append(drawn[node])
        for node in drawn.values():
            node.children.sort(key=lambda child: child.typed)
        return Picture(drawn[self.tree.root_node])


def _lock(count: int) -> list[str]:
    return [f"lock {count}"] if count else []


def _key(tokens: list[int], space: str | None = None) -> str:
    return f"RadixKey({in_python(tokens, space)})"
