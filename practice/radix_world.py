"""What the tests of several problems about the prefix tree share: worlds to compare.

`PrefixModel` says what a radix tree must do, and has no nodes: it knows every page of
every prefix by itself. `TreeWorld` does the same with a real tree. A problem's tests
make subclasses of both, with the operations and the part of the state that it is about.
An answer cannot import this module.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from grading import NotApplicable, draw_tree
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_key import RadixKey

Prefix = tuple[Any, ...]  # the namespace, then tokens, whole pages
Row = tuple[list[Any], list[int], int, int]  # path, slots, stamp, locks: one node
# A path is the namespace, then the tokens of each node from the root down.


class _Slots:
    """Numbers slots as they come."""

    num_slots = 0

    def next_slots(self, tokens: Sequence[int]) -> array[int]:
        """A slot for each token that no token has had before."""
        first = self.num_slots
        self.num_slots += len(tokens)
        return array("i", range(first, self.num_slots))


class PrefixModel(_Slots):
    """A radix tree without nodes.

    `pages` maps each prefix to [slots of its last page, stamp, who holds it]; `ends`
    has those at which a node ends, `held` the prefixes that a name has locked.
    """

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.pages: dict[Prefix, list[Any]] = {}
        self.ends: set[Prefix] = set()
        self.held: dict[str, list[Prefix]] = {}
        self.clock = 0

    def insert(
        self,
        tokens: Sequence[int],
        slots: Sequence[int] | None = None,
        space: Any = None,
    ) -> int:
        """How many tokens were there; slots are numbered unless they are given."""
        slots = self.next_slots(tokens) if slots is None else slots
        known = len(self.walk(tokens, space)) * self.page_size
        for prefix in self.prefixes(tokens, space):
            end = len(prefix) - 1
            page = list(slots[end - self.page_size : end])
            self.pages.setdefault(prefix, [page, self.clock, set()])
            if end + self.page_size > len(tokens):
                self.ends.add(prefix)
        return known

    def match(self, tokens: Sequence[int], space: Any = None) -> list[int]:
        """The slots of what is found."""
        return self.slots(self.walk(tokens, space))

    def lock(self, name: str, tokens: Sequence[int], space: Any = None) -> None:
        """Lock what is found for `tokens`."""
        if name in self.held:
            raise NotApplicable(f"{name} holds a lock")
        self.held[name] = self.walk(tokens, space)
        for prefix in self.held[name]:
            self.pages[prefix][2].add(name)

    def unlock(self, name: str) -> None:
        if name not in self.held:
            raise NotApplicable(f"{name} holds no lock")
        for prefix in self.held.pop(name):
            self.pages[prefix][2].remove(name)

    def evict(self, size: int) -> list[int]:
        """The slots that go: whole leaves, the one unused for longest first."""
        if not 0 <= size <= self.sizes()[0]:
            raise EvictionError(f"{size} tokens are not evictable")
        freed: list[int] = []
        while len(freed) < size:
            leaf = min(self.leaves(), key=lambda prefix: self.pages[prefix][1])
            freed += self.row(leaf)[1]
            self.ends.remove(leaf)
            while leaf in self.pages and leaf not in self.ends:
                del self.pages[leaf]
                leaf = leaf[: -self.page_size]
        return freed

    def sizes(self) -> tuple[int, int]:
        """Tokens that may be evicted, and tokens that are locked."""
        protected = sum(bool(page[2]) for page in self.pages.values())
        evictable = len(self.pages) - protected
        return evictable * self.page_size, protected * self.page_size

    def rows(self) -> list[Row]:
        return [self.row(end) for end in self.ends]

    def row(self, end: Prefix) -> Row:
        """The node that ends there."""
        path, start = [end[0]], 1
        for prefix in self.prefixes(end[1:], end[0]):
            if prefix in self.ends:
                path.append(list(prefix[start:]))
                start = len(prefix)
        slots = self.slots(self.prefixes(end[1:], end[0]))
        _, stamp, holders = self.pages[end]
        return path, slots[-len(path[-1]) :], stamp, len(holders)

    def integrity(self) -> str:
        return "passes"

    def leaves(self) -> list[Prefix]:
        """Where the nodes end that may be evicted next."""
        inner = {prefix[: -self.page_size] for prefix in self.pages}
        return [p for p in self.pages if p not in inner and not self.pages[p][2]]

    def walk(self, tokens: Sequence[int], space: Any = None) -> list[Prefix]:
        """The prefixes that are there. They are used now, and a node ends with them."""
        self.clock += 1
        found = []
        for prefix in self.prefixes(tokens, space):
            if prefix not in self.pages:
                break
            self.pages[prefix][1] = self.clock
            found.append(prefix)
        self.ends.update(found[-1:])
        return found

    def prefixes(self, tokens: Sequence[int], space: Any = None) -> Iterator[Prefix]:
        """Every prefix of whole pages, the shortest first."""
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            yield (space, *tokens[:end])

    def slots(self, prefixes: Iterable[Prefix]) -> list[int]:
        """The slots of the pages with which these prefixes end."""
        return [slot for prefix in prefixes for slot in self.pages[prefix][0]]


class TreeWorld(_Slots):
    """The same with a tree; `handles` has the receipt of each name."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.handles: dict[str, Any] = {}

    @property
    def clock(self) -> int:
        return self.tree.clock

    def insert(
        self,
        tokens: Sequence[int],
        slots: Sequence[int] | None = None,
        space: Any = None,
    ) -> int:
        slots = self.next_slots(tokens) if slots is None else array("i", slots)
        return self.tree.insert_prefix(RadixKey(tokens, space), slots).cached_len

    def match(self, tokens: Sequence[int], space: Any = None) -> list[int]:
        return self.tree.match_prefix(RadixKey(tokens, space)).matched_slots().tolist()

    def lock(self, name: str, tokens: Sequence[int], space: Any = None) -> None:
        self.handles[name] = self.tree.match_prefix(RadixKey(tokens, space))
        return self.tree.lock(self.handles[name])

    def unlock(self, name: str) -> None:
        return self.tree.unlock(self.handles.pop(name))

    def evict(self, size: int) -> list[int]:
        return self.tree.evict(size).tolist()

    def sizes(self) -> tuple[int, int]:
        return self.tree.evictable_size, self.tree.protected_size

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        waiting: list[tuple[list[Any], Any]] = []
        for child_key, child in self.tree.root_node.children.items():
            is_tagged = isinstance(child_key, tuple)
            waiting.append(([child_key[0][0][1] if is_tagged else None], child))
        while waiting:
            above, node = waiting.pop()
            path = [*above, node.key.tolist()]
            rows.append((path, node.value.tolist(), node.timestamp, node.ref_count))
            waiting += [(path, child) for child in node.children.values()]
        return rows

    def integrity(self) -> str:
        """What the tree's own recount says."""
        try:
            self.tree.check_integrity()
        except IntegrityError as error:
            return str(error)
        return "passes"


def in_order(rows: Iterable[Any]) -> list[Any]:
    """Rows that begin with a path: parents before their children."""
    return sorted(rows, key=lambda row: [str(part) for part in row[0]])


def draw_rows(
    rows: Iterable[Any], label: Callable[[Any], str], root: str = "root"
) -> str:
    """Rows that begin with a path, as a tree; `label(row)` is said of each."""
    rows = in_order(rows)
    paths = [row[0] for row in rows]

    def children(row: Any) -> list[Any]:
        if row is None:
            return [below for below in rows if below[0][:-1] not in paths]
        return [below for below in rows if below[0][:-1] == row[0]]

    return draw_tree(None, children, lambda row: label(row) if row else root)


def plant(tree: Any, *prefixes: Sequence[Any]) -> Any:
    """The tree, with (tokens, slots[, namespace]) inserted in this order."""
    for tokens, slots, *space in prefixes:
        tree.insert_prefix(RadixKey(tokens, *space), array("i", slots))
    return tree


def plant_branch(tree: Any, depth: int) -> None:
    """A branch of `depth` nodes of one token each; token and slot are the depth."""
    tokens = array("i", range(depth))
    tree.insert_prefix(RadixKey(tokens), tokens)
    for end in range(depth - 1, 0, -1):
        tree.match_prefix(RadixKey(tokens[:end]))  # splits off the last token


def path(node: Any) -> list[int]:
    """The tokens from the root to the end of `node`."""
    tokens: list[int] = []
    while node is not None:
        tokens = node.key.tolist() + tokens
        node = node.parent
    return tokens


def random_tokens(rng: random.Random, page_size: int) -> list[int]:
    """Some pages that differ in their last token only, and a part of one."""
    tokens: list[int] = []
    for last in rng.choices((1, 2), weights=(3, 1), k=rng.randrange(7)):
        tokens += [1] * (page_size - 1) + [last]
    return tokens + [1] * rng.randrange(page_size)
